#pragma once
// apps/report. What makes a page look and answer as it does: its style sheet and its script.
#include <string_view>

namespace tri::report {

extern const std::string_view kStyle;   // light and dark; the colours of curves, formats and text
extern const std::string_view kScript;  // shows the values of a chart under the pointer

}  // namespace tri::report
