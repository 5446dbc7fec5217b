// `triaccel eval CKPT`: how often a trained network is right.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "tri/session.h"

namespace tri::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const Evaluated& result) {
  const size_t classes = result.class_names.size();
  Json confusion = Json::array();
  for (size_t row = 0; row < classes; ++row) {
    const auto first = result.confusion.begin() + static_cast<std::ptrdiff_t>(row * classes);
    confusion.push_back(
        Json(std::vector<uint64_t>(first, first + static_cast<std::ptrdiff_t>(classes))));
  }
  return {{"accuracy", result.accuracy},
          {"top5", result.top5},
          {"loss", result.loss},
          {"count", result.count},
          {"confusion", std::move(confusion)},
          {"classes", result.class_names},
          {"skipped", result.skipped},
          {"part", result.part},
          {"checkpoint", result.checkpoint}};
}

// Each class with how many of its images were recognised.
void print_text(const Evaluated& result) {
  fmt::print("{} images of the {} set, weights of {}\n", result.count, result.part,
             result.checkpoint);
  fmt::print("accuracy {:.2f} %  top-5 {:.2f} %  loss {:.4f}\n", 100 * result.accuracy,
             100 * result.top5, result.loss);
  const size_t classes = result.class_names.size();
  constexpr size_t kMostRows = 20;
  if (classes > kMostRows) return;
  for (size_t row = 0; row < classes; ++row) {
    uint64_t all = 0;
    for (size_t column = 0; column < classes; ++column) {
      all += result.confusion[row * classes + column];
    }
    fmt::print("  {:<24}{:>6} of {:>6}\n", result.class_names[row],
               result.confusion[row * classes + row], all);
  }
}

Result<void> work(ModelSource source, const SharedOptions& shared) {
  if (shared.threads != 0) source.threads = static_cast<int64_t>(shared.threads);
  TRI_ASSIGN(const Evaluated result, evaluate_model(source));
  if (result.skipped > 0 && !shared.quiet) {
    fmt::print(stderr,
               "triaccel: {} images could not be read and others were counted in their places; the "
               "first: {}\n",
               result.skipped, result.first_skipped);
  }
  if (shared.json) {
    fmt::print("{}\n", as_json(result).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_text(result);
  }
  return {};
}

}  // namespace

Command eval_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand("eval", "Accuracy of a checkpoint on a data set");
  auto source = std::make_shared<ModelSource>();
  add_model_flags(*parser, *source);
  parser->add_option("--batch", source->batch, "Images that are looked at together [64]")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  return {parser, [source, &shared] { return work(*source, shared); }};
}

}  // namespace tri::cli
