#include "worker/data/sequences.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

class Windows final : public Sequences {
 public:
  Windows(std::unique_ptr<TokenSource> source, int64_t seq_len, int64_t vocab, int64_t count)
      : source_(std::move(source)), seq_len_(seq_len), vocab_(vocab), count_(count) {}

  int64_t seq_len() const override { return seq_len_; }
  int64_t count() const override { return count_; }
  int64_t Targets(int64_t index) const override {
    return std::min(seq_len_, source_->tokens() - 1 - index * seq_len_);
  }

  absl::Status Fill(int64_t index, int32_t* inputs, int32_t* targets) const override {
    const int64_t count = Targets(index);
    std::vector<int32_t> window(static_cast<size_t>(count) + 1);
    SHERD_RETURN_IF_ERROR(source_->Read(index * seq_len_, count + 1, window.data()));
    // A larger token would index past the embedding: files may change while a job runs.
    for (const int32_t token : window) {
      if (token < 0 || token >= vocab_) {
        return absl::OutOfRangeError(absl::StrCat("the data holds token ", token,
                                                  ", but model.vocab is ", vocab_,
                                                  "; it must be above every token"));
      }
    }
    std::fill(std::copy_n(window.begin(), count, inputs), inputs + seq_len_, 0);
    std::fill(std::copy_n(window.begin() + 1, count, targets), targets + seq_len_, -1);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<TokenSource> source_;
  const int64_t seq_len_;
  const int64_t vocab_;
  const int64_t count_;
};

// Those of another that a split leaves on one side.
class Side final : public Sequences {
 public:
  Side(std::shared_ptr<const Sequences> all, const ValidationSplit& split, bool held_out)
      : all_(std::move(all)), split_(split), held_out_(held_out) {}

  int64_t seq_len() const override { return all_->seq_len(); }
  int64_t count() const override { return held_out_ ? split_.validation() : split_.training(); }
  int64_t Targets(int64_t index) const override { return all_->Targets(In(index)); }
  absl::Status Fill(int64_t index, int32_t* inputs, int32_t* targets) const override {
    return all_->Fill(In(index), inputs, targets);
  }

 private:
  int64_t In(int64_t index) const {
    return held_out_ ? split_.ValidationWindow(index) : split_.TrainingWindow(index);
  }

  const std::shared_ptr<const Sequences> all_;
  const ValidationSplit split_;
  const bool held_out_;
};

class Joined final : public Sequences {
 public:
  explicit Joined(std::vector<std::unique_ptr<Sequences>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      SHERD_CHECK(part->seq_len() == seq_len());
      starts_.push_back(count_);
      count_ += part->count();
    }
  }

  int64_t seq_len() const override { return parts_.front()->seq_len(); }
  int64_t count() const override { return count_; }
  int64_t Targets(int64_t index) const override {
    const size_t part = PartOf(index);
    return parts_[part]->Targets(index - starts_[part]);
  }
  absl::Status Fill(int64_t index, int32_t* inputs, int32_t* targets) const override {
    const size_t part = PartOf(index);
    return parts_[part]->Fill(index - starts_[part], inputs, targets);
  }

 private:
  size_t PartOf(int64_t index) const {
    return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), index) -
                               starts_.begin() - 1);
  }

  const std::vector<std::unique_ptr<Sequences>> parts_;
  std::vector<int64_t> starts_;
  int64_t count_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Sequences>> CutWindows(std::unique_ptr<TokenSource> source,
                                                      int64_t seq_len, int64_t vocab, Tail tail) {
  const int64_t predicted = source->tokens() - 1;
  if (tail == Tail::kKept && predicted < 1) {
    return absl::InvalidArgumentError(
        "the evaluation data has a single token, but predicting takes at least two");
  }
  const int64_t whole = predicted / seq_len;
  if (tail == Tail::kDropped && whole < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the training data has ", source->tokens(), " tokens, but one sequence takes ",
                     seq_len, " and the one after; give more data or a shorter seq_len"));
  }
  const int64_t count = tail == Tail::kDropped ? whole : whole + (predicted % seq_len > 0 ? 1 : 0);
  return std::make_unique<Windows>(std::move(source), seq_len, vocab, count);
}

std::unique_ptr<Sequences> TrainingSide(std::shared_ptr<const Sequences> all,
                                        const ValidationSplit& split) {
  return std::make_unique<Side>(std::move(all), split, /*held_out=*/false);
}

std::unique_ptr<Sequences> ValidationSide(std::shared_ptr<const Sequences> all,
                                          const ValidationSplit& split) {
  return std::make_unique<Side>(std::move(all), split, /*held_out=*/true);
}

std::unique_ptr<Sequences> JoinSequences(std::vector<std::unique_ptr<Sequences>> parts) {
  SHERD_CHECK(!parts.empty());
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Joined>(std::move(parts));
}

}  // namespace sherd
