#include "contract/interpreter.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/philox.h"
#include "numeric/noise.h"
#include "numeric/round.h"

namespace tri::contract {
namespace {

using nn::Node;
using ops::Activation;
using ops::OpKind;
using tensor::Shape;

// The factor by which a mask multiplies: 0 or 1 / (1 - rate).
template <class T>
T kept(float draw, float rate) {
  return draw < rate ? T{0} : T{1} / (T{1} - T{rate});
}

template <class T>
T sigmoid(T z) {
  return T{1} / (T{1} + std::exp(-z));
}

template <class T>
std::vector<T> narrowed(const Numbers& values) {
  std::vector<T> out(values.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(values[i]);
  return out;
}

// T: the numbers in which everything is computed.
template <class T>
class Interpreter {
 public:
  using Values = std::vector<T>;

  Interpreter(const nn::Model& model, const Problem& problem, const Solution* before)
      : model_(model), problem_(problem), before_(before), values_(model.nodes.size()) {
    for (const Numbers& values : problem.parameters) parameters_.push_back(narrowed<T>(values));
    out_.running_mean.resize(model.nodes.size());
    out_.running_variance.resize(model.nodes.size());
    norms_.resize(model.nodes.size());
  }

  Solution run() {
    for (size_t n = 0; n < model_.nodes.size(); ++n) {
      at_ = n;
      forward(model_.nodes[n]);
      if (n > 0) keep(values_[n]);
    }
    for (const Values& values : values_) grads_.emplace_back(values.size(), T{0});
    loss();
    if (!problem_.training) return std::move(out_);
    for (const Values& values : parameters_) {
      parameter_grads_.emplace_back(values.size(), T{0});
      out_.magnitudes.emplace_back(values.size(), 0.0);
    }
    for (size_t n = model_.nodes.size(); n-- > 0;) {
      at_ = n;
      keep(grads_[n]);
      backward(model_.nodes[n]);
    }
    for (const Values& grad : parameter_grads_)
      out_.gradients.emplace_back(grad.begin(), grad.end());
    return std::move(out_);
  }

 private:
  void keep(Values& values) const {
    if (problem_.kept_in == numeric::Format::kF32) return;
    for (T& v : values)
      v = static_cast<T>(numeric::decode(
          problem_.kept_in, numeric::encode(problem_.kept_in, static_cast<float>(v)).bits));
  }
  static size_t index(const Shape& s, int64_t n, int64_t y, int64_t x, int64_t c) {
    return static_cast<size_t>(((n * s.h + y) * s.w + x) * s.c + c);
  }
  const Shape& shape_of(int node) const { return model_.nodes[static_cast<size_t>(node)].shape; }
  const Values& value(int node) const { return values_[static_cast<size_t>(node)]; }
  Values& grad(int node) { return grads_[static_cast<size_t>(node)]; }
  const Values& parameter(int p) const { return parameters_[static_cast<size_t>(p)]; }
  void add_parameter_grad(int parameter, size_t i, T term) {
    const auto p = static_cast<size_t>(parameter);
    parameter_grads_[p][i] += term;
    out_.magnitudes[p][i] += std::abs(static_cast<double>(term));
  }

  template <class Visit>
  void for_each_element(const Shape& s, Visit visit) const {
    for (int64_t n = 0; n < problem_.samples; ++n)
      for (int64_t y = 0; y < s.h; ++y)
        for (int64_t x = 0; x < s.w; ++x)
          for (int64_t c = 0; c < s.c; ++c) visit(n, y, x, c);
  }

  // conv2d: visit(output, input, weight) for every product.
  template <class Visit>
  void for_each_product(const Node& node, Visit visit) const {
    const Shape& in = shape_of(node.inputs[0]);
    const ops::Attributes& a = node.attr;
    const int64_t group_in = in.c / a.groups, group_out = node.shape.c / a.groups;
    for_each_element(node.shape, [&](int64_t n, int64_t y, int64_t x, int64_t o) {
      for (int64_t ky = 0; ky < a.kernel_h; ++ky)
        for (int64_t kx = 0; kx < a.kernel_w; ++kx) {
          const int64_t iy = y * a.stride_h - a.padding_h + ky;
          const int64_t ix = x * a.stride_w - a.padding_w + kx;
          if (iy < 0 || iy >= in.h || ix < 0 || ix >= in.w) continue;
          for (int64_t i = 0; i < group_in; ++i)
            visit(index(node.shape, n, y, x, o), index(in, n, iy, ix, o / group_out * group_in + i),
                  static_cast<size_t>(((o * group_in + i) * a.kernel_h + ky) * a.kernel_w + kx));
        }
    });
  }

  // linear: columns are numbered as PyTorch flattens an image, channels outermost.
  template <class Visit>
  void for_each_column(const Node& node, Visit visit) const {
    const Shape& image = node.attr.flattened_from;
    for (int64_t n = 0; n < problem_.samples; ++n)
      for (int64_t o = 0; o < node.shape.c; ++o)
        for (int64_t c = 0; c < image.c; ++c)
          for (int64_t p = 0; p < image.pixels(); ++p)
            visit(static_cast<size_t>(n * node.shape.c + o),
                  static_cast<size_t>(n * image.elements() + p * image.c + c),
                  static_cast<size_t>(o * image.elements() + c * image.pixels() + p));
  }

  struct Window {
    int64_t top, bottom, left, right;  // real pixels
    T divisor;                         // avg_pool
  };
  static Window window(const ops::Attributes& a, const Shape& in, int64_t y, int64_t x) {
    const int64_t top = y * a.stride_h - a.padding_h, left = x * a.stride_w - a.padding_w;
    const int64_t bottom = std::min(top + a.kernel_h, in.h + a.padding_h);
    const int64_t right = std::min(left + a.kernel_w, in.w + a.padding_w);
    Window w{std::max<int64_t>(top, 0), std::min(bottom, in.h), std::max<int64_t>(left, 0),
             std::min(right, in.w), 0};
    w.divisor = static_cast<T>(a.count_include_pad ? (bottom - top) * (right - left)
                                                   : (w.bottom - w.top) * (w.right - w.left));
    return w;
  }

  // The pixel a max pool takes: the first of the largest.
  size_t largest(const Node& node, int64_t n, int64_t y, int64_t x, int64_t c) {
    const Shape& in = shape_of(node.inputs[0]);
    const Values& v = value(node.inputs[0]);
    const Window w = window(node.attr, in, y, x);
    size_t best = index(in, n, w.top, w.left, c);
    T second = -std::numeric_limits<T>::infinity();
    for (int64_t iy = w.top; iy < w.bottom; ++iy)
      for (int64_t ix = w.left; ix < w.right; ++ix) {
        const size_t i = index(in, n, iy, ix, c);
        if (i == best) continue;
        second = std::max(second, std::min(v[i], v[best]));
        if (v[i] > v[best]) best = i;
      }
    // Equal maxima are a tie in any precision (behind a ReLU, zeros): the first one wins.
    if (v[best] != second) see_kink(v[best] - second);
    return best;
  }

  // Operations that are linear once the values before them are known: visit(output, which input,
  // input, factor). Forward and backward are the same links, walked either way.
  template <class Visit>
  void for_each_link(const Node& node, Visit visit) {
    const ops::Attributes& a = node.attr;
    const Shape& s = node.shape;
    const Shape& in = shape_of(node.inputs[0]);
    const T pixels = static_cast<T>(in.pixels());
    for_each_element(s, [&](int64_t n, int64_t y, int64_t x, int64_t c) {
      const size_t o = index(s, n, y, x, c);
      switch (node.kind) {
        case OpKind::kMaxPool:
          return visit(o, size_t{0}, largest(node, n, y, x, c), T{1});
        case OpKind::kAvgPool: {
          const Window w = window(a, in, y, x);
          for (int64_t iy = w.top; iy < w.bottom; ++iy)
            for (int64_t ix = w.left; ix < w.right; ++ix)
              visit(o, size_t{0}, index(in, n, iy, ix, c), T{1} / w.divisor);
          return;
        }
        case OpKind::kGlobalAvgPool:
          for (int64_t iy = 0; iy < in.h; ++iy)
            for (int64_t ix = 0; ix < in.w; ++ix)
              visit(o, size_t{0}, index(in, n, iy, ix, c), T{1} / pixels);
          return;
        case OpKind::kAdd:
          for (size_t k = 0; k < node.inputs.size(); ++k) visit(o, k, o, T{1});
          return;
        case OpKind::kConcat: {
          int64_t first = 0;
          for (size_t k = 0; k < node.inputs.size(); ++k) {
            const Shape& part = shape_of(node.inputs[k]);
            if (c >= first && c < first + part.c)
              visit(o, k, index(part, n, y, x, c - first), T{1});
            first += part.c;
          }
          return;
        }
        case OpKind::kSplit:
          return visit(o, size_t{0}, index(in, n, y, x, a.begin + c), T{1});
        case OpKind::kChannelShuffle:
          return visit(o, size_t{0},
                       index(in, n, y, x, c % a.groups * (in.c / a.groups) + c / a.groups), T{1});
        case OpKind::kFlatten:
          return visit(o, size_t{0}, o, T{1});
        case OpKind::kDropout: {
          const auto element = static_cast<uint32_t>(c + s.c * (x + s.w * y));
          const base::Stream stream(problem_.seed, base::Purpose::kDropout, id(n), at_);
          const auto key = stream.block(0);
          const float draw = base::uniform_float(numeric::noise({key[0], key[1]}, element));
          return visit(o, size_t{0}, o, masks() ? kept<T>(draw, a.rate) : T{1});
        }
        case OpKind::kStochasticDepth: {
          base::Stream stream(problem_.seed, base::Purpose::kStochasticDepth, id(n), at_);
          return visit(o, size_t{0}, o, masks() ? kept<T>(stream.uniform(), a.rate) : T{1});
        }
        default:
          TRI_CHECK(false, "no links: {}", ops::name(node.kind));
      }
    });
  }
  bool masks() const { return problem_.training && !problem_.frozen; }
  uint64_t id(int64_t n) const { return problem_.ids[static_cast<size_t>(n)]; }

  void forward(const Node& node) {
    Values& y = values_[at_];
    y.assign(static_cast<size_t>(problem_.samples * node.shape.elements()), T{0});
    switch (node.kind) {
      case OpKind::kInput:
        y = narrowed<T>(problem_.x);
        return;
      case OpKind::kConv2d:
      case OpKind::kLinear: {
        const Values &x = value(node.inputs[0]), &w = parameter(node.weight);
        const auto add = [&](size_t o, size_t i, size_t k) { y[o] += x[i] * w[k]; };
        if (node.kind == OpKind::kConv2d)
          for_each_product(node, add);
        else
          for_each_column(node, add);
        if (node.bias < 0) return;
        for (size_t o = 0; o < y.size(); ++o)
          y[o] += parameter(node.bias)[o % static_cast<size_t>(node.shape.c)];
        return;
      }
      case OpKind::kBatchNorm:
        return norm_forward(node, y);
      case OpKind::kActivation:
        for (size_t i = 0; i < y.size(); ++i) y[i] = activate(node, value(node.inputs[0])[i]);
        return;
      case OpKind::kChannelScale:
        for_each_element(node.shape, [&](int64_t n, int64_t py, int64_t px, int64_t c) {
          const size_t o = index(node.shape, n, py, px, c);
          y[o] = value(node.inputs[0])[o] * value(node.inputs[1])[factor_of(node, n, c)];
        });
        return;
      default:
        for_each_link(node, [&](size_t o, size_t k, size_t i, T factor) {
          y[o] += factor * value(node.inputs[k])[i];
        });
    }
  }
  static size_t factor_of(const Node& node, int64_t n, int64_t c) {
    return static_cast<size_t>(n * node.shape.c + c);
  }

  void backward(const Node& node) {
    const Values& dy = grads_[at_];
    switch (node.kind) {
      case OpKind::kInput:
        return;
      case OpKind::kConv2d:
      case OpKind::kLinear: {
        const Values &x = value(node.inputs[0]), &w = parameter(node.weight);
        Values& dx = grad(node.inputs[0]);
        const auto add = [&](size_t o, size_t i, size_t k) {
          dx[i] += dy[o] * w[k];
          add_parameter_grad(node.weight, k, dy[o] * x[i]);
        };
        if (node.kind == OpKind::kConv2d)
          for_each_product(node, add);
        else
          for_each_column(node, add);
        if (node.bias < 0) return;
        for (size_t o = 0; o < dy.size(); ++o)
          add_parameter_grad(node.bias, o % static_cast<size_t>(node.shape.c), dy[o]);
        return;
      }
      case OpKind::kBatchNorm:
        return norm_backward(node, dy);
      case OpKind::kActivation: {
        Values& dx = grad(node.inputs[0]);
        for (size_t i = 0; i < dy.size(); ++i)
          dx[i] += dy[i] * slope(node.attr.activation, value(node.inputs[0])[i]);
        return;
      }
      case OpKind::kChannelScale:
        for_each_element(node.shape, [&](int64_t n, int64_t py, int64_t px, int64_t c) {
          const size_t o = index(node.shape, n, py, px, c), f = factor_of(node, n, c);
          grad(node.inputs[0])[o] += dy[o] * value(node.inputs[1])[f];
          grad(node.inputs[1])[f] += dy[o] * value(node.inputs[0])[o];
        });
        return;
      default:
        for_each_link(node, [&](size_t o, size_t k, size_t i, T factor) {
          grad(node.inputs[k])[i] += factor * dy[o];
        });
    }
  }

  void see_kink(T distance) {
    out_.margin = std::min(out_.margin, std::abs(static_cast<double>(distance)));
  }
  T activate(const Node& node, T z) {
    const Activation kind = node.attr.activation;
    // An exact zero is one in any precision: what a ReLU, a mask or a factor cut off.
    if ((kind == Activation::kRelu || kind == Activation::kRelu6) && z != T{0}) see_kink(z);
    if (kind == Activation::kRelu6) see_kink(z - T{6});
    switch (kind) {
      case Activation::kNone:
        return z;
      case Activation::kRelu:
        return std::max(z, T{0});
      case Activation::kRelu6:
        return std::clamp(z, T{0}, T{6});
      case Activation::kSilu:
        return z * sigmoid(z);
      case Activation::kSigmoid:
        return sigmoid(z);
    }
    return z;
  }
  static T slope(Activation kind, T z) {
    const T s = sigmoid(z), one = 1;
    switch (kind) {
      case Activation::kNone:
        return one;
      case Activation::kRelu:
        return z > T{0} ? one : T{0};
      case Activation::kRelu6:
        return z > T{0} && z < T{6} ? one : T{0};
      case Activation::kSilu:
        return s * (one + z * (one - s));
      case Activation::kSigmoid:
        return s * (one - s);
    }
    return one;
  }

  struct Moments {
    T mean = 0, inverse = 0, rows = 0;
  };
  int64_t ghost() const { return problem_.ghost == 0 ? problem_.samples : problem_.ghost; }
  int64_t ghosts() const { return (problem_.samples + ghost() - 1) / ghost(); }

  // visit(ghost, channel, elements of both)
  template <class Visit>
  void for_each_column_of_ghosts(const Node& node, Visit visit) const {
    std::vector<size_t> elements;
    for (int64_t c = 0; c < node.shape.c; ++c)
      for (int64_t k = 0; k < ghosts(); ++k) {
        elements.clear();
        const int64_t end = std::min(problem_.samples, (k + 1) * ghost());
        for (int64_t row = k * ghost() * node.shape.pixels(); row < end * node.shape.pixels();
             ++row)
          elements.push_back(static_cast<size_t>(row * node.shape.c + c));
        visit(static_cast<size_t>(k), static_cast<size_t>(c), elements);
      }
  }

  void norm_forward(const Node& node, Values& y) {
    const Values& x = value(node.inputs[0]);
    const Values &gamma = parameter(node.weight), &beta = parameter(node.bias);
    const auto channels = static_cast<size_t>(node.shape.c);
    const T eps = node.attr.eps;
    Numbers& mean = out_.running_mean[at_];
    Numbers& variance = out_.running_variance[at_];
    if (!masks()) {
      mean = before_->running_mean[at_];
      variance = before_->running_variance[at_];
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t c = i % channels;
        const T scale = gamma[c] / std::sqrt(static_cast<T>(variance[c]) + eps);
        y[i] = x[i] * scale + (beta[c] - static_cast<T>(mean[c]) * scale);
      }
      return;
    }
    mean.assign(channels, 0.0);
    variance.assign(channels, 1.0);
    const double momentum = double{node.attr.momentum};
    norms_[at_].resize(static_cast<size_t>(ghosts()) * channels);
    for_each_column_of_ghosts(node, [&](size_t k, size_t c, const std::vector<size_t>& all) {
      Moments& m = norms_[at_][k * channels + c];
      m.rows = static_cast<T>(all.size());
      for (const size_t i : all) m.mean += x[i] / m.rows;
      T squares = 0;
      for (const size_t i : all) squares += (x[i] - m.mean) * (x[i] - m.mean);
      m.inverse = T{1} / std::sqrt(squares / m.rows + eps);
      const T scale = gamma[c] * m.inverse, shift = beta[c] - m.mean * scale;
      for (const size_t i : all) y[i] = x[i] * scale + shift;
      mean[c] += momentum * (static_cast<double>(m.mean) - mean[c]);
      variance[c] +=
          momentum * (static_cast<double>(squares / std::max(T{1}, m.rows - T{1})) - variance[c]);
    });
  }

  void norm_backward(const Node& node, const Values& dy) {
    const Values& x = value(node.inputs[0]);
    Values& dx = grad(node.inputs[0]);
    const auto channels = static_cast<size_t>(node.shape.c);
    if (problem_.frozen) return frozen_norm_backward(node, dy);
    for_each_column_of_ghosts(node, [&](size_t k, size_t c, const std::vector<size_t>& all) {
      const Moments& m = norms_[at_][k * channels + c];
      T plain = 0, centred = 0;
      for (const size_t i : all) {
        const T normalised = (x[i] - m.mean) * m.inverse;
        plain += dy[i];
        centred += dy[i] * normalised;
        add_parameter_grad(node.weight, c, dy[i] * normalised);
        add_parameter_grad(node.bias, c, dy[i]);
      }
      // dy - mean(dy) - normalised * mean(dy * normalised) as a sum of three: where it cancels, as
      // it does over two values, each one's rounding counts.
      const T a = parameter(node.weight)[c] * m.inverse;
      const T slope_of_x = -a * m.inverse * centred / m.rows, constant = -a * plain / m.rows;
      for (const size_t i : all) dx[i] += a * dy[i] + (slope_of_x * (x[i] - m.mean) + constant);
    });
  }

  void frozen_norm_backward(const Node& node, const Values& dy) {
    const Values& x = value(node.inputs[0]);
    const auto channels = static_cast<size_t>(node.shape.c);
    for (size_t i = 0; i < dy.size(); ++i) {
      const size_t c = i % channels;
      const T inverse =
          T{1} / std::sqrt(static_cast<T>(before_->running_variance[at_][c]) + T{node.attr.eps});
      add_parameter_grad(node.weight, c,
                         dy[i] * (x[i] - static_cast<T>(before_->running_mean[at_][c])) * inverse);
      add_parameter_grad(node.bias, c, dy[i]);
      grad(node.inputs[0])[i] += dy[i] * parameter(node.weight)[c] * inverse;
    }
  }

  void loss() {
    const Values& logits = value(model_.output);
    out_.logits.assign(logits.begin(), logits.end());
    Values& d = grad(model_.output);
    const auto classes = static_cast<size_t>(model_.classes());
    const auto samples = static_cast<double>(problem_.samples);
    for (size_t n = 0; n < static_cast<size_t>(problem_.samples); ++n) {
      const double* row = out_.logits.data() + n * classes;
      const double top = *std::max_element(row, row + classes);
      double sum = 0;
      for (size_t k = 0; k < classes; ++k) sum += std::exp(row[k] - top);
      for (size_t k = 0; k < classes; ++k) {
        const bool right = static_cast<int32_t>(k) == problem_.labels[n];
        const double target = problem_.smoothing / static_cast<double>(classes) +
                              (right ? 1.0 - problem_.smoothing : 0.0);
        const double log_share = row[k] - top - std::log(sum);
        out_.loss -= target * log_share / samples;
        d[n * classes + k] = static_cast<T>((std::exp(log_share) - target) / samples);
      }
    }
  }

  const nn::Model& model_;
  const Problem& problem_;
  const Solution* before_;
  size_t at_ = 0;  // the node at work
  std::vector<Values> values_, grads_, parameters_, parameter_grads_;
  std::vector<std::vector<Moments>> norms_;
  Solution out_;
};

}  // namespace

Solution solve(const nn::Model& model, const Problem& problem, const Solution* before) {
  TRI_CHECK((problem.training && !problem.frozen) || before != nullptr);
  if (problem.single) return Interpreter<float>(model, problem, before).run();
  return Interpreter<double>(model, problem, before).run();
}

}  // namespace tri::contract
