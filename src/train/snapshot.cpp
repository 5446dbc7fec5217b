#include "train/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/safetensors.h"
#include "train/model_file.h"

namespace tri::train {
namespace {

using checkpoint::DType;
using checkpoint::SafetensorsReader;
using checkpoint::SafetensorsWriter;

// Every block of the persistent region, by the name of its owner.
std::map<std::string, std::span<std::byte>> blocks_of(const exec::Parameters& parameters) {
  const nn::Model& model = parameters.model();
  std::map<std::string, std::span<std::byte>> blocks;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const exec::ParameterSlot& slot = parameters.slot(p);
    const std::string& name = model.parameters[p].name;
    blocks[name + "/weights"] = {slot.storage.main, slot.weight_bytes};
    if (slot.state_bytes > 0) blocks[name + "/state"] = {slot.storage.first, slot.state_bytes};
  }
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    if (model.nodes[n].kind != ops::OpKind::kBatchNorm) continue;
    const int node = static_cast<int>(n);
    blocks[model.nodes[n].name + "/mean"] = std::as_writable_bytes(parameters.running_mean(node));
    blocks[model.nodes[n].name + "/variance"] =
        std::as_writable_bytes(parameters.running_variance(node));
  }
  return blocks;
}

Result<void> write_blocks(checkpoint::DirectoryWriter& directory,
                          const exec::Parameters& parameters) {
  const auto blocks = blocks_of(parameters);
  std::vector<checkpoint::TensorSpec> specs;
  for (const auto& [name, bytes] : blocks) specs.push_back({name, DType::kU8, {bytes.size()}});
  TRI_ASSIGN(SafetensorsWriter writer,
             SafetensorsWriter::create(directory.file(kOptimizerFile), std::move(specs), {}));
  for (size_t t = 0; t < writer.tensors().size(); ++t) {
    const std::span<const std::byte> bytes = blocks.at(writer.tensors()[t].name);
    for (size_t at = 0; at < bytes.size(); at += checkpoint::kPieceBytes) {
      TRI_TRY(writer.append(
          t, bytes.subspan(at, std::min(checkpoint::kPieceBytes, bytes.size() - at))));
    }
  }
  TRI_ASSIGN(checkpoint::FileRecord record, writer.finish());
  record.name = kOptimizerFile;
  directory.add(std::move(record));
  return {};
}

}  // namespace

Result<void> save_snapshot(const std::string& path, exec::Engine& engine, const RunState& state,
                           DType export_dtype) {
  const exec::Parameters& parameters = engine.parameters();
  TRI_ASSIGN(checkpoint::DirectoryWriter directory, checkpoint::DirectoryWriter::begin(path));
  TRI_TRY(write_model(directory, parameters, export_dtype, state.norm_batches));
  TRI_TRY(write_blocks(directory, parameters));
  TRI_TRY(directory.write(kStateFile, to_json(state)));
  return directory.commit();
}

Result<RunState> read_snapshot_state(const std::string& path) {
  TRI_ASSIGN(const checkpoint::Directory directory, checkpoint::Directory::open(path));
  TRI_TRY(directory.verify());
  TRI_ASSIGN(const std::string text, directory.read(kStateFile));
  return parse_state(text, directory.file(kStateFile));
}

Result<void> load_snapshot(const std::string& path, exec::Engine& engine) {
  const std::string file = fmt::format("{}/{}", path, kOptimizerFile);
  TRI_ASSIGN(const SafetensorsReader reader, SafetensorsReader::open(file));
  const auto blocks = blocks_of(engine.parameters());
  for (const auto& [name, bytes] : blocks) {
    const checkpoint::TensorInfo* const found = reader.find(name);
    if (found == nullptr || found->bytes() != bytes.size()) {
      return unexpected(
          ErrorCode::kFailed,
          fmt::format("'{}' does not fit this run: '{}' has {} bytes there and {} here; use the "
                      "program that saved it",
                      file, name, found == nullptr ? 0 : found->bytes(), bytes.size()));
    }
    TRI_TRY(reader.read(*found, 0, bytes));
  }
  return {};
}

}  // namespace tri::train
