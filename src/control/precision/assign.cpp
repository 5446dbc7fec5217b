#include "control/precision/assign.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/permutation.h"

namespace tri::control {
namespace {

using Kind = AssignOp::Kind;

size_t index(int i) { return static_cast<size_t>(i); }

// Elements of GY as of Y, except where no gradient goes.
int64_t gradient_elements(const AssignOp& op) {
  return op.kind == Kind::kInput ? 0 : op.y_elements;
}

std::vector<size_t> demotion_order(const std::vector<int64_t>& sizes,
                                   const AssignSettings& settings) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  switch (settings.order) {
    case AssignmentOrder::kDescending:
      std::ranges::stable_sort(order, [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
      break;
    case AssignmentOrder::kAscending:
      std::ranges::stable_sort(order, [&](size_t a, size_t b) { return sizes[a] < sizes[b]; });
      break;
    case AssignmentOrder::kRandom: {
      const base::Permutation shuffled(sizes.size(), settings.seed, UINT64_MAX);  // of no epoch
      std::ranges::transform(order, order.begin(), [&](size_t i) { return shuffled(i); });
      break;
    }
  }
  return order;
}

bool feeds_gemm(std::span<const AssignOp> ops, size_t op) {
  return std::ranges::any_of(ops, [op](const AssignOp& reader) {
    return reader.kind == Kind::kGemm &&
           std::ranges::find(reader.inputs, static_cast<int>(op)) != reader.inputs.end();
  });
}

}  // namespace

std::vector<int> groups_of(std::span<const AssignOp> ops) {
  std::vector<int> groups;
  int group = -1;
  for (const AssignOp& op : ops) {
    if (op.kind != Kind::kOther) ++group;
    TRI_CHECK(group >= 0, "the first operation is neither an input nor a GEMM");
    groups.push_back(group);
  }
  return groups;
}

std::vector<int> parameter_groups_of(std::span<const AssignOp> ops) {
  const std::vector<int> groups = groups_of(ops);
  std::vector<int> owners;
  for (size_t i = 0; i < ops.size(); ++i) {
    owners.push_back(ops[i].inputs.empty() ? groups[i] : groups[index(ops[i].inputs.front())]);
  }
  return owners;
}

std::vector<int64_t> group_elements(std::span<const AssignOp> ops, int64_t batch) {
  if (ops.empty()) return {};
  const std::vector<int> groups = groups_of(ops), owners = parameter_groups_of(ops);
  std::vector<int64_t> sizes(index(groups.back()) + 1);
  for (size_t i = 0; i < ops.size(); ++i) {
    sizes[index(groups[i])] += batch * (ops[i].y_elements + gradient_elements(ops[i]));
    sizes[index(owners[i])] += 2 * ops[i].params;
  }
  return sizes;
}

Assignment assign(std::span<const AssignOp> ops, int64_t batch, const AssignSettings& settings) {
  const std::vector<int64_t> sizes = group_elements(ops, batch);
  const auto all = static_cast<double>(std::reduce(sizes.begin(), sizes.end()));
  std::vector<bool> low(sizes.size(), settings.low_share >= 1);
  if (settings.low_share > 0 && settings.low_share < 1) {
    int64_t sum = 0;
    for (const size_t group : demotion_order(sizes, settings)) {
      if (static_cast<double>(sum) >= settings.low_share * all) break;
      low[group] = true;
      sum += sizes[group];
    }
  }
  const std::vector<int> groups = groups_of(ops), owners = parameter_groups_of(ops);
  Assignment assignment;
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool own = low[index(groups[i])];
    assignment.push_back({.p = low[index(owners[i])], .y = own, .gy = own});
  }
  return assignment;
}

Assignment assign_hfp8(std::span<const AssignOp> ops) {
  Assignment assignment(ops.size());
  const auto is_gemm = [](const AssignOp& op) { return op.kind == Kind::kGemm; };
  const auto first = std::ranges::find_if(ops, is_gemm);
  const auto last = std::find_if(ops.rbegin(), ops.rend(), is_gemm);
  if (first == ops.end()) return assignment;
  const auto first_gemm = static_cast<size_t>(first - ops.begin());
  const auto last_gemm = ops.size() - 1 - static_cast<size_t>(last - ops.rbegin());
  for (size_t i = first_gemm + 1; i < last_gemm; ++i) {
    if (is_gemm(ops[i])) assignment[i].p = assignment[i].gy = true;
  }
  for (size_t i = first_gemm; i < last_gemm; ++i) {
    const bool feeds_last = std::ranges::find(ops[last_gemm].inputs, static_cast<int>(i)) !=
                            ops[last_gemm].inputs.end();
    assignment[i].y = feeds_gemm(ops, i) && !feeds_last;
  }
  return assignment;
}

uint64_t tensor_bits(std::span<const AssignOp> ops, int64_t batch, const Assignment& assignment) {
  TRI_CHECK(ops.size() == assignment.size(), "{} and {}", ops.size(), assignment.size());
  const auto bits = [](bool low) { return low ? 8 : 16; };
  int64_t sum = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    sum += ops[i].params * (bits(assignment[i].p) + 16);
    sum += batch * ops[i].y_elements * bits(assignment[i].y);
    sum += batch * gradient_elements(ops[i]) * bits(assignment[i].gy);
  }
  return static_cast<uint64_t>(sum);
}

double low_ratio(std::span<const AssignOp> ops, int64_t batch, const Assignment& assignment) {
  const auto high = static_cast<double>(tensor_bits(ops, batch, Assignment(ops.size())));
  const auto now = static_cast<double>(tensor_bits(ops, batch, assignment));
  return high > 0 ? 2 * (high - now) / high : 0;
}

PrecisionTable table_of(std::span<const AssignOp> ops, const Assignment& assignment,
                        size_t layers) {
  TRI_CHECK(ops.size() == assignment.size(), "{} and {}", ops.size(), assignment.size());
  constexpr Format kHigh = Format::kF16e6;
  PrecisionTable table(layers, {kHigh, Format::kF8e4b4, Format::kF8e5, kHigh});
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].layer < 0) continue;
    PrecisionRow& row = table[index(ops[i].layer)];
    if (ops[i].kind == Kind::kGemm && assignment[i].p) row.p = Format::kF8e4b4;
    if (!ops[i].stored) continue;
    if (!assignment[i].y) row.y = kHigh;
    if (!assignment[i].gy) row.gy = kHigh;
  }
  return table;
}

}  // namespace tri::control
