#pragma once
// Room: train. The most common refusal: what somebody asked for cannot be.
#include <string>
#include <utility>

#include "tri/result.h"

namespace tri {

inline Unexpected invalid(std::string message) {
  return unexpected(ErrorCode::kInvalid, std::move(message));
}

}  // namespace tri
