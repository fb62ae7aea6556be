#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "worker/record/figures.h"

namespace sherd {

std::string MetricsJsonl::Record(const Figures& figures) const {
  nlohmann::ordered_json json = {{"event", figures.evaluation ? "eval" : "step"},
                                 {"step", figures.step},
                                 {"epoch", figures.epoch}};
  for (const auto& [name, value] : figures.values) json[name] = value;
  json["tokens"] = figures.tokens;
  json["time"] = figures.time;
  return absl::StrCat(json.dump(), "\n");
}

bool MetricsJsonl::Take(absl::string_view& bytes, bool& evaluation, int64_t& step) const {
  const size_t end = bytes.find('\n');
  if (end == absl::string_view::npos) return false;
  const absl::string_view line = bytes.substr(0, end);
  const auto json = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
  if (!json.is_object()) return false;
  const auto event = json.find("event");
  const auto number = json.find("step");
  if (event == json.end() || number == json.end() || !number->is_number_unsigned()) return false;
  evaluation = *event == "eval";
  step = number->get<int64_t>();
  bytes.remove_prefix(end + 1);
  return true;
}

}  // namespace sherd
