#include "cli/model_flags.h"

namespace tri::cli {

void add_model_flags(CLI::App& parser, ModelSource& source) {
  parser
      .add_option("checkpoint", source.path,
                  "A run's directory (its last checkpoint), a checkpoint or a safetensors file")
      ->type_name("CKPT")
      ->required();
  parser.add_option("--data", source.data, "Data set [the checkpoint's own]")->type_name("NAME");
  parser.add_option("--model", source.model, "Network of a safetensors file")->type_name("NAME");
  parser.add_option("--width", source.width, "Width of that network")->type_name("X");
  parser.add_option("--pixels", source.pixels, "Side of that network's input")
      ->type_name("N")
      ->check(CLI::Range(1, 65535));
}

}  // namespace tri::cli
