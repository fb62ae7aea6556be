#include "worker/agent/mend_strings.h"

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "common/utf8.h"

namespace sherd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void MendText(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (!field.is_repeated()) {
    const std::string text = reflection.GetString(message, &field);
    if (FindInvalidUtf8(text)) reflection.SetString(&message, &field, MendUtf8(text));
    return;
  }
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const std::string text = reflection.GetRepeatedString(message, &field, i);
    if (FindInvalidUtf8(text)) reflection.SetRepeatedString(&message, &field, i, MendUtf8(text));
  }
}

void MendNested(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (!field.is_repeated()) return MendStrings(*reflection.MutableMessage(&message, &field));
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    MendStrings(*reflection.MutableRepeatedMessage(&message, &field, i));
  }
}

}  // namespace

void MendStrings(Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      MendText(message, *field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      MendNested(message, *field);
    }
  }
}

}  // namespace sherd
