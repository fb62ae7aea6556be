#include "worker/comm/link_message.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr uint32_t kMagic = 0x44524853;  // "SHRD"
constexpr uint8_t kVersion = 4;
enum class Kind : uint8_t {
  kHello = 1,
  kSegment = 2,
  kGoodbye = 3,
  kHolding = 4,
  kVersion = 5,
  kReports = 6,
  kRanges = 7,
  kStored = 8
};

class Writer {
 public:
  explicit Writer(Kind kind) {
    Integer(kMagic);
    Integer(kVersion);
    Integer(static_cast<uint8_t>(kind));
  }
  template <typename T>
  void Integer(T value) {
    for (size_t byte = 0; byte < sizeof(T); ++byte) {
      out_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * byte)));
    }
  }
  void Double(double value) { Integer(std::bit_cast<uint64_t>(value)); }
  void String(const std::string& value) {
    SHERD_CHECK(value.size() <= kMaxLinkStringBytes);
    Integer(static_cast<uint16_t>(value.size()));
    out_ += value;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads past the end give zeros and leave complete() false.
class Reader {
 public:
  explicit Reader(absl::string_view in) : in_(in) {}
  template <typename T>
  T Integer() {
    uint64_t value = 0;
    const absl::string_view bytes = Bytes(sizeof(T));
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[byte])) << (8 * byte);
    }
    return static_cast<T>(value);
  }
  double Double() { return std::bit_cast<double>(Integer<uint64_t>()); }
  // Of a list.
  size_t Length(size_t most) {
    const size_t length = Integer<uint16_t>();
    if (length > most) wrong_ = true;
    return wrong_ ? 0 : length;
  }
  std::string String() {
    const size_t length = Integer<uint16_t>();
    if (length > kMaxLinkStringBytes) wrong_ = true;
    return std::string(Bytes(wrong_ ? 0 : length));
  }
  // What was read cannot be.
  void Refuse() { wrong_ = true; }
  // Everything was there and nothing is left over.
  bool complete() const { return !wrong_ && in_.empty(); }

 private:
  absl::string_view Bytes(size_t length) {
    if (length > in_.size()) {
      wrong_ = true;
      return "";
    }
    const absl::string_view bytes = in_.substr(0, length);
    in_.remove_prefix(length);
    return bytes;
  }

  absl::string_view in_;
  bool wrong_ = false;
};

std::string Encode(const LinkHello& hello) {
  Writer writer(Kind::kHello);
  writer.String(hello.job_id);
  writer.Integer(hello.epoch);
  writer.String(hello.group);
  writer.String(hello.secret);
  writer.Integer(hello.size);
  writer.Integer(hello.from);
  writer.Integer(hello.to);
  writer.Integer(static_cast<uint8_t>(hello.lane));
  return writer.Take();
}

std::string Encode(const LinkSegment& segment) {
  Writer writer(Kind::kSegment);
  writer.String(segment.secret);
  writer.Integer(segment.arena_bytes);
  return writer.Take();
}

std::string Encode(const LinkGoodbye& goodbye) {
  Writer writer(Kind::kGoodbye);
  writer.Integer(static_cast<uint8_t>(goodbye.code));
  writer.Integer(goodbye.lost_peer);
  writer.String(goodbye.text.substr(0, kMaxLinkStringBytes));
  return writer.Take();
}

std::string Encode(const LinkHolding& holding) {
  Writer writer(Kind::kHolding);
  writer.Integer(static_cast<uint8_t>(holding.wish));
  writer.String(holding.job_id);
  writer.Integer(holding.epoch);
  writer.Integer(holding.world);
  writer.Integer(holding.owner);
  writer.Integer(holding.slot_bytes);
  writer.Integer(holding.step);
  writer.String(holding.secret);
  return writer.Take();
}

std::string Encode(const LinkVersion& version) {
  Writer writer(Kind::kVersion);
  writer.Integer(version.slot);
  writer.Integer(version.step);
  writer.Integer(version.checksum);
  writer.Integer(version.skipped_windows);
  writer.Double(version.loss);
  writer.Integer(version.reports);
  return writer.Take();
}

std::string Encode(const LinkReports& list) {
  SHERD_CHECK(list.reports.size() <= LinkReports::kMost);
  Writer writer(Kind::kReports);
  writer.Integer(static_cast<uint16_t>(list.reports.size()));
  for (const LinkReport& report : list.reports) {
    writer.Integer(report.step);
    writer.Double(report.loss);
    writer.Double(report.grad_norm);
    writer.Double(report.lr);
    writer.Integer(report.tokens);
    writer.Double(report.tokens_per_second);
    writer.Double(report.step_ms);
    writer.Double(report.exposed_ms);
    writer.Integer(report.skipped_windows);
  }
  return writer.Take();
}

std::string Encode(const LinkRanges& list) {
  SHERD_CHECK(list.ranges.size() <= LinkRanges::kMost);
  Writer writer(Kind::kRanges);
  writer.Integer(static_cast<uint16_t>(list.ranges.size()));
  for (const LinkRanges::Range& range : list.ranges) {
    writer.Integer(range.begin);
    writer.Integer(range.bytes);
  }
  return writer.Take();
}

std::string Encode(const LinkStored& stored) {
  Writer writer(Kind::kStored);
  writer.Integer(stored.step);
  return writer.Take();
}

LinkHello DecodeHello(Reader& reader) {
  LinkHello hello;
  hello.job_id = reader.String();
  hello.epoch = reader.Integer<int64_t>();
  hello.group = reader.String();
  hello.secret = reader.String();
  hello.size = reader.Integer<int32_t>();
  hello.from = reader.Integer<int32_t>();
  hello.to = reader.Integer<int32_t>();
  const uint8_t lane = reader.Integer<uint8_t>();
  if (lane > static_cast<uint8_t>(LinkLane::kData)) reader.Refuse();
  hello.lane = static_cast<LinkLane>(lane);
  return hello;
}

LinkSegment DecodeSegment(Reader& reader) {
  LinkSegment segment;
  segment.secret = reader.String();
  segment.arena_bytes = reader.Integer<int64_t>();
  return segment;
}

LinkGoodbye DecodeGoodbye(Reader& reader) {
  LinkGoodbye goodbye;
  const uint8_t code = reader.Integer<uint8_t>();
  if (code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)) reader.Refuse();
  goodbye.code = static_cast<absl::StatusCode>(code);
  goodbye.lost_peer = reader.Integer<int32_t>();
  goodbye.text = reader.String();
  return goodbye;
}

LinkHolding DecodeHolding(Reader& reader) {
  LinkHolding holding;
  const uint8_t wish = reader.Integer<uint8_t>();
  if (wish > static_cast<uint8_t>(LinkHolding::Wish::kRead)) reader.Refuse();
  holding.wish = static_cast<LinkHolding::Wish>(wish);
  holding.job_id = reader.String();
  holding.epoch = reader.Integer<int64_t>();
  holding.world = reader.Integer<int32_t>();
  holding.owner = reader.Integer<int32_t>();
  holding.slot_bytes = reader.Integer<int64_t>();
  holding.step = reader.Integer<int64_t>();
  holding.secret = reader.String();
  return holding;
}

LinkVersion DecodeVersion(Reader& reader) {
  LinkVersion version;
  version.slot = reader.Integer<int32_t>();
  version.step = reader.Integer<int64_t>();
  version.checksum = reader.Integer<uint64_t>();
  version.skipped_windows = reader.Integer<int64_t>();
  version.loss = reader.Double();
  version.reports = reader.Integer<int32_t>();
  return version;
}

LinkReports DecodeReports(Reader& reader) {
  LinkReports list;
  list.reports.resize(reader.Length(LinkReports::kMost));
  for (LinkReport& report : list.reports) {
    report.step = reader.Integer<int64_t>();
    report.loss = reader.Double();
    report.grad_norm = reader.Double();
    report.lr = reader.Double();
    report.tokens = reader.Integer<int64_t>();
    report.tokens_per_second = reader.Double();
    report.step_ms = reader.Double();
    report.exposed_ms = reader.Double();
    report.skipped_windows = reader.Integer<int64_t>();
  }
  return list;
}

LinkRanges DecodeRanges(Reader& reader) {
  LinkRanges list;
  list.ranges.resize(reader.Length(LinkRanges::kMost));
  for (LinkRanges::Range& range : list.ranges) {
    range.begin = reader.Integer<int64_t>();
    range.bytes = reader.Integer<int64_t>();
  }
  return list;
}

LinkStored DecodeStored(Reader& reader) { return {.step = reader.Integer<int64_t>()}; }

}  // namespace

std::string EncodeLinkMessage(const LinkMessage& message) {
  return std::visit([](const auto& alternative) { return Encode(alternative); }, message);
}

absl::StatusOr<LinkMessage> DecodeLinkMessage(absl::string_view bytes) {
  if (bytes.size() > kMaxLinkMessageBytes) {
    return absl::InvalidArgumentError("a link message that is too long");
  }
  Reader reader(bytes);
  if (reader.Integer<uint32_t>() != kMagic) {
    return absl::InvalidArgumentError("not a link message");
  }
  if (const uint8_t version = reader.Integer<uint8_t>(); version != kVersion) {
    return absl::InvalidArgumentError("a link message of another version");
  }
  LinkMessage message;
  switch (static_cast<Kind>(reader.Integer<uint8_t>())) {
    case Kind::kHello:
      message = DecodeHello(reader);
      break;
    case Kind::kSegment:
      message = DecodeSegment(reader);
      break;
    case Kind::kGoodbye:
      message = DecodeGoodbye(reader);
      break;
    case Kind::kHolding:
      message = DecodeHolding(reader);
      break;
    case Kind::kVersion:
      message = DecodeVersion(reader);
      break;
    case Kind::kReports:
      message = DecodeReports(reader);
      break;
    case Kind::kRanges:
      message = DecodeRanges(reader);
      break;
    case Kind::kStored:
      message = DecodeStored(reader);
      break;
    default:
      return absl::InvalidArgumentError("a link message of an unknown kind");
  }
  if (!reader.complete()) return absl::InvalidArgumentError("a link message of a wrong length");
  return message;
}

bool EqualSecrets(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace sherd
