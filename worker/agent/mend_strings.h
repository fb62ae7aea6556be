#pragma once

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace sherd {

// Replaces what is not UTF-8 in every string field of `message` and of the messages in it: file
// names and errors are any bytes, and one bad byte would break the stream each time it is sent.
void MendStrings(google::protobuf::Message& message);

}  // namespace sherd
