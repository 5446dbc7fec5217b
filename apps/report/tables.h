#pragma once
// apps/report. The parts of a page that are text: what runs came to, what was decided, how they
// were configured.
#include <vector>

#include "report/page.h"
#include "report/run_log.h"

namespace tri::report {

void write_headline(Page& page, const std::vector<RunLog>& runs);
void write_decisions(Page& page, const RunLog& run);
void write_configuration(Page& page, const std::vector<RunLog>& runs);

}  // namespace tri::report
