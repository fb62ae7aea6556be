#include "coordinator/core/directories.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace sherd {
namespace {

using Path = std::filesystem::path;

// Without "." and "..", and without a slash at its end; absolute if `root` is.
Path Resolve(const std::string& root, const std::string& directory) {
  const Path path = (Path(root) / directory).lexically_normal();
  return path.has_filename() || path == path.root_path() ? path : path.parent_path();
}

// `inner` is `outer` or lies in it.
bool Holds(const Path& outer, const Path& inner) {
  // A relative directory that is the root itself.
  if (outer == ".") return inner.is_relative();
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
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
