#include "client/print.h"

#include <iostream>

namespace sherd {

void Print(OutputFormat format, const Json& json, const std::string& text) {
  switch (format) {
    case OutputFormat::kTable:
      std::cout << text;
      break;
    case OutputFormat::kJson:
      std::cout << ToLine(json) << "\n";
      break;
    case OutputFormat::kYaml:
      std::cout << ToYaml(json);
      break;
  }
  std::cout << std::flush;
}

}  // namespace sherd
