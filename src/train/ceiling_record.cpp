#include "train/ceiling_record.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace tri::train {
namespace {

using Json = nlohmann::ordered_json;

// A move shows in the decision that followed it; one that came with --resume, in the new start.
void take(CeilingRecord& record, uint64_t& now, const Json& event) {
  const auto kind = event.at("event").get<std::string>();
  uint64_t ceiling = now;
  if (kind == "start") event.at("ceiling_bytes").get_to(ceiling);
  if (kind == "control") event.at("signals").at("ceiling_bytes").get_to(ceiling);
  if (now == 0 && kind == "start") {
    event.at("base_bytes").get_to(record.base_bytes);
    record.first_bytes = ceiling;
  } else if (ceiling != now) {
    record.moves.push_back({event.at("step").get<uint64_t>(), ceiling});
  }
  now = ceiling;
}

}  // namespace

Result<CeilingRecord> read_ceilings(const std::string& metrics) {
  std::ifstream file(metrics);
  CeilingRecord record;
  uint64_t now = 0;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      take(record, now, Json::parse(line));
    } catch (const Json::exception& exception) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("line {} of '{}' is not an event of this program ({}); use a "
                                    "run of this version",
                                    number, metrics, exception.what()));
    }
  }
  if (now == 0) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("'{}' does not tell how its run began; give the directory of a "
                                  "run",
                                  metrics));
  }
  return record;
}

std::optional<CeilingMove> RecordedCeilings::poll(uint64_t step) {
  if (next_ == moves_.size() || moves_[next_].step > step) return std::nullopt;
  return CeilingMove{moves_[next_++].bytes, "as in the run that is repeated"};
}

}  // namespace tri::train
