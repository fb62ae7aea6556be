#include "coordinator/core/worker_order.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sherd {
namespace {

// Orders "cpu:9" before "cpu:10": by length of digit runs first, then by text.
std::string NaturalKey(absl::string_view text) {
  std::string key;
  for (size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      key += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    // A run's length sorts before its digits; runs are bounded by the length of an id.
    key += static_cast<char>('0' + std::min<size_t>(end - i, 70));
    absl::StrAppend(&key, text.substr(i, end - i));
    i = end;
  }
  return key;
}

}  // namespace

void SortByPlace(std::vector<const WorkerState*>& workers) {
  using Place = std::tuple<std::string, std::string, std::string, const WorkerState*>;
  std::vector<Place> ordered;
  ordered.reserve(workers.size());
  for (const WorkerState* worker : workers) {
    ordered.emplace_back(worker->host, NaturalKey(worker->id.value()), worker->id.value(), worker);
  }
  std::sort(ordered.begin(), ordered.end());
  for (size_t i = 0; i < ordered.size(); ++i) workers[i] = std::get<3>(ordered[i]);
}

}  // namespace sherd
