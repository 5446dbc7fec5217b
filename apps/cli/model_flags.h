#pragma once
// apps/cli. Which trained network a command is about, as its flags say.
#include "cli/command.h"
#include "tri/session.h"

namespace tri::cli {

// Adds CKPT and the options that a plain file of weights needs; `source` outlives the parser's
// work.
void add_model_flags(CLI::App& parser, ModelSource& source);

}  // namespace tri::cli
