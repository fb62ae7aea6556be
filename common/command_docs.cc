#include "common/command_docs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sherd {
namespace {

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) {
    return !command->get_name().empty() && !command->get_group().empty();
  });
}

// "--steps", "-o"; none of a positional argument.
std::vector<std::string> Spellings(const CLI::Option& option) {
  std::vector<std::string> spellings;
  for (const std::string& name : option.get_snames()) spellings.push_back(absl::StrCat("-", name));
  for (const std::string& name : option.get_lnames()) spellings.push_back(absl::StrCat("--", name));
  return spellings;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// "FILE", "TEXT:{…}" as the help shows it; "" of a flag.
std::string ValueOf(const CLI::Option& option) {
  if (!TakesValue(option)) return "";
  const std::string text(absl::StripAsciiWhitespace(option.get_option_text()));
  if (!text.empty()) return text;
  return option.get_type_name().empty() ? "VALUE" : option.get_type_name();
}

// Text as man(7) shows it: no line that begins with a control character, no hyphen that becomes a
// dash, no escape.
std::string Roff(absl::string_view text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return absl::StrReplaceAll(out, {{"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
}

void AppendOption(const CLI::Option& option, std::string& out) {
  const std::string value = ValueOf(option);
  if (option.get_positional()) {
    absl::StrAppend(&out, ".TP\n\\fI", Roff(option.get_name(/*positional=*/true)), "\\fR\n");
  } else {
    absl::StrAppend(&out, ".TP\n\\fB", Roff(absl::StrJoin(Spellings(option), ", ")), "\\fR",
                    value.empty() ? "" : absl::StrCat(" \\fI", Roff(value), "\\fR"), "\n");
  }
  absl::StrAppend(&out, Roff(option.get_description()), option.get_required() ? " (required)" : "",
                  ".\n");
}

void AppendOptions(const CLI::App& app, std::string& out) {
  for (const CLI::Option* option : OptionsOf(app)) AppendOption(*option, out);
}

void CollectVariables(const CLI::App& app, std::map<std::string, std::string>& variables) {
  for (const CLI::Option* option : OptionsOf(app)) {
    if (!option->get_envname().empty()) {
      variables.emplace(option->get_envname(), Spellings(*option).back());
    }
  }
  for (const CLI::App* command : CommandsOf(app)) CollectVariables(*command, variables);
}

std::string Words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* command : CommandsOf(app)) words.push_back(command->get_name());
  for (const CLI::Option* option : OptionsOf(app)) {
    for (std::string& spelling : Spellings(*option)) words.push_back(std::move(spelling));
  }
  return absl::StrJoin(words, " ");
}

// The words that may follow each command, as branches of a shell's `case`; and the first word's.
std::string Bash(const CLI::App& app) {
  const std::string& name = app.get_name();
  const std::string function =
      absl::StrCat("_", absl::StrReplaceAll(name, {{"-", "_"}}), "_complete");
  std::string out = absl::StrCat(
      "# Completion of ", name, " for bash.\n", function,
      "() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} command= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac\n"
      "  done\n"
      "  local words\n"
      "  case $command in\n");
  for (const CLI::App* command : CommandsOf(app)) {
    absl::StrAppend(&out, "    ", command->get_name(), ") words='", Words(*command), "' ;;\n");
  }
  absl::StrAppend(&out, "    *) words='", Words(app),
                  "' ;;\n"
                  "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                  "}\n"
                  // Whatever is no word of ours is the name of a file.
                  "complete -o default -F ",
                  function, " ", name, "\n");
  return out;
}

std::string FishQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

void AppendFishOptions(const CLI::App& app, const std::string& program,
                       const std::string& condition, std::string& out) {
  for (const CLI::Option* option : OptionsOf(app)) {
    if (option->get_positional()) continue;
    absl::StrAppend(&out, "complete -c ", program, " -n ", FishQuoted(condition));
    for (const std::string& name : option->get_snames()) absl::StrAppend(&out, " -s ", name);
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&out, " -l ", name);
    absl::StrAppend(&out, TakesValue(*option) ? " -r" : "", " -d ",
                    FishQuoted(option->get_description()), "\n");
  }
}

std::string Fish(const CLI::App& app) {
  const std::string& name = app.get_name();
  std::string out = absl::StrCat("# Completion of ", name, " for fish.\n");
  AppendFishOptions(app, name, "__fish_use_subcommand", out);
  for (const CLI::App* command : CommandsOf(app)) {
    absl::StrAppend(&out, "complete -c ", name, " -n __fish_use_subcommand -f -a ",
                    command->get_name(), " -d ", FishQuoted(command->get_description()), "\n");
    AppendFishOptions(*command, name,
                      absl::StrCat("__fish_seen_subcommand_from ", command->get_name()), out);
  }
  return out;
}

}  // namespace

std::string ManualPage(const CLI::App& app) {
  const std::string& name = app.get_name();
  // As man finds the page when it is asked for the words.
  const std::string title = absl::StrReplaceAll(name, {{" ", "-"}});
  std::string description(absl::StripSuffix(app.get_description(), "."));
  if (!description.empty()) description[0] = absl::ascii_tolower(description[0]);
  const std::vector<const CLI::App*> commands = CommandsOf(app);
  std::string out = absl::StrCat(
      ".TH ", absl::AsciiStrToUpper(Roff(title)), " 1 \"\" \"sherd ", Roff(SHERD_VERSION), "\"\n",
      ".SH NAME\n", Roff(title), " \\- ", Roff(description), "\n.SH SYNOPSIS\n.B ", Roff(name),
      commands.empty() ? "\n[\\fIOPTION\\fR]...\n"
                       : "\n\\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n",
      ".SH OPTIONS\n");
  AppendOptions(app, out);
  if (!commands.empty()) absl::StrAppend(&out, ".SH COMMANDS\n");
  for (const CLI::App* command : commands) {
    absl::StrAppend(&out, ".SS ", Roff(command->get_name()), "\n", Roff(command->get_description()),
                    ".\n");
    AppendOptions(*command, out);
  }
  std::map<std::string, std::string> variables;
  CollectVariables(app, variables);
  if (!variables.empty()) absl::StrAppend(&out, ".SH ENVIRONMENT\n");
  for (const auto& [variable, option] : variables) {
    absl::StrAppend(&out, ".TP\n\\fB", Roff(variable), "\\fR\nStands for ", Roff(option), ".\n");
  }
  return out;
}

void AddManual(CLI::App& app) {
  app.add_flag_callback("--man", [&app] { throw CLI::CallForVersion(ManualPage(app), 0); })
      ->group("");
}

absl::StatusOr<std::string> CompletionScript(const CLI::App& app, absl::string_view shell) {
  if (shell == "bash") return Bash(app);
  // It reads bash's.
  if (shell == "zsh") {
    return absl::StrCat("autoload -U +X bashcompinit && bashcompinit\n", Bash(app));
  }
  if (shell == "fish") return Fish(app);
  return absl::InvalidArgumentError(
      absl::StrCat("no completion for the shell '", shell, "'; there is bash, zsh and fish"));
}

}  // namespace sherd
