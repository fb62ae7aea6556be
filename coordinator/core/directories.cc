#include "coordinator/core/directories.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sherd {
namespace {

constexpr char kAbsolute[] = "/";
constexpr char kRelative[] = ".";

// Where it begins, then its names; without "." and, but for the beginning of a relative one, "..".
using Path = std::vector<std::string>;

Path Resolve(const std::string& root, const std::string& directory) {
  const std::string path = root.empty() || absl::StartsWith(directory, "/")
                               ? directory
                               : absl::StrCat(root, "/", directory);
  Path parts = {absl::StartsWith(path, "/") ? kAbsolute : kRelative};
  for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    if (part != "..") {
      parts.emplace_back(part);
    } else if (parts.size() > 1 && parts.back() != "..") {
      parts.pop_back();
    } else if (parts.front() == kRelative) {
      parts.emplace_back(part);
    }
  }
  return parts;
}

// `inner` is `outer` or lies in it.
bool Holds(const Path& outer, const Path& inner) {
  return outer.size() <= inner.size() && std::equal(outer.begin(), outer.end(), inner.begin());
}

// Of workers, in any order, each once; "" alone while none is known.
std::set<std::string> OutputRoots(const State& state) {
  std::set<std::string> roots;
  for (const auto& [id, worker] : state.workers) roots.insert(worker.output_root);
  if (roots.empty()) roots.insert("");
  return roots;
}

}  // namespace

const JobRecord* FindJobInDirectory(const State& state, const JobId& id, const v1::JobSpec& spec,
                                    bool (*counts)(v1::JobState)) {
  if (spec.checkpoint().dir().empty()) return nullptr;
  for (const std::string& root : OutputRoots(state)) {
    const Path wanted = Resolve(root, spec.checkpoint().dir());
    for (const auto& [other, job] : state.jobs) {
      if (other == id || !counts(job.state) || job.spec.checkpoint().dir().empty()) continue;
      const Path taken = Resolve(root, job.spec.checkpoint().dir());
      if (Holds(wanted, taken) || Holds(taken, wanted)) return &job;
    }
  }
  return nullptr;
}

}  // namespace sherd
