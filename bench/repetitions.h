#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sherd {

// What a repetition tells: names and numbers. "seconds" by the wall clock and "cpu_seconds", which
// all threads of the process computed, are always among them.
using Figures = std::vector<std::pair<std::string, double>>;

// Times one call.
Figures Timed(const std::function<void()>& work);
// total += factor · part, figure by figure; an empty total becomes it.
void AddTimes(const Figures& part, double factor, Figures& total);

// A program that compare.py drives, one repetition at a time, so that several take turns in one
// run. Every line that comes in is answered by one line of JSON:
//   "run"    one repetition's figures
//   "memory" {"idle": …, "peak": …}: resident bytes when this object was made, and the most since
class Repetitions {
 public:
  Repetitions();

  // Writes one line by itself; strings are written as they are.
  void Say(const std::string& name, const std::string& value);
  // The next line; "" at the end.
  std::string Hear();

  // Says that the program is ready, with `about` it, then serves until stdin ends.
  void Serve(const Figures& about, const std::function<Figures()>& repetition);

 private:
  const int64_t idle_bytes_;
};

}  // namespace sherd
