// `triaccel predict CKPT IMAGE...`: what a trained network sees in image files.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "tri/session.h"

namespace tri::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PredictCommand {
  ModelSource source;
  std::vector<std::string> images;
};

Result<void> work(const PredictCommand& command, const SharedOptions& shared) {
  ModelSource source = command.source;
  if (shared.threads != 0) source.threads = static_cast<int64_t>(shared.threads);
  TRI_ASSIGN(const std::vector<Prediction> predictions, predict_images(source, command.images));
  Json document = Json::array();
  size_t unread = 0;
  std::string first_error;
  for (const Prediction& seen : predictions) {
    if (!seen.error.empty()) {
      if (unread++ == 0) first_error = seen.error;
      if (shared.json) document.push_back({{"image", seen.image}, {"error", seen.error}});
    } else if (shared.json) {
      document.push_back({{"image", seen.image},
                          {"label", seen.label},
                          {"class", seen.class_name},
                          {"probability", seen.probability}});
    } else {
      fmt::print("{}: {} ({:.1f} %)\n", seen.image, seen.class_name, 100 * seen.probability);
    }
  }
  if (shared.json) {
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  if (unread == 0) return {};
  return unexpected(ErrorCode::kFailed,
                    unread == 1 ? first_error
                                : fmt::format("{} of {} images cannot be read; the first: {}",
                                              unread, predictions.size(), first_error));
}

}  // namespace

Command predict_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand("predict", "Class and probability of image files");
  auto command = std::make_shared<PredictCommand>();
  add_model_flags(*parser, command->source);
  parser->add_option("images", command->images, "PNG or JPEG files")
      ->type_name("IMAGE...")
      ->required();
  return {parser, [command, &shared] { return work(*command, shared); }};
}

}  // namespace tri::cli
