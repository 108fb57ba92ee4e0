// dgem read: a prompt and an answer template in, a probability for every label of every slot out.
#include "cli/commands.h"
#include "cli/device_options.h"

#include "base/json.h"
#include "base/utf8.h"
#include "decide/answer_template.h"
#include "decide/read.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dgem::cli {
namespace {

constexpr int kBadInput = 2;
constexpr size_t kMaxInputBytes = size_t{16} << 20;

constexpr const char* kFooter =
    "The prompt is the user's message: the state, and the questions. The answer template is the answer with a slot for\n"
    "each label, such as 'urgent: [yes|no]'; every label must be one token. What the prompt contains stays text: strings\n"
    "such as <turn|> in it do not become control tokens.\n"
    "Examples:\n"
    "  dgem read --model models/nano --prompt-file examples/ticket.txt --answer-file examples/ticket.answer\n"
    "  cat ticket.txt | dgem read - --model models/nano --answer 'urgent: [yes|no]' --json";

struct Options {
  std::string model, system;
  std::optional<std::string> prompt, prompt_file, dash, answer, answer_file;
  std::optional<uint64_t> seed;
  int samples = 1;
  DeviceOptions device;
  bool as_json = false;
};

template <class T>
T need(Result<T> result, const std::string& about) {
  if (result) return std::move(result).value();
  const Error& error = result.error();
  throw Exit(kBadInput, (about.empty() ? "" : about + ": ") + error.message +
                            (error.pointer.empty() ? "" : " (at " + error.pointer + ")"));
}

std::string read_stream(std::istream& stream, const std::string& name) {
  std::string text(kMaxInputBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad()) throw Exit(kBadInput, "cannot read " + name);
  if (text.size() > kMaxInputBytes) throw Exit(kBadInput, fmt::format("{} has more than {} bytes", name, kMaxInputBytes));
  return text;
}

// The text itself, or the file's; "-" is standard input.
std::string input_text(const std::optional<std::string>& text, const std::string& file) {
  if (text) return utf8::replace_invalid(*text);
  if (file == "-") return utf8::replace_invalid(read_stream(std::cin, "standard input"));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Exit(kBadInput, "cannot open " + file);
  return utf8::replace_invalid(read_stream(stream, file));
}

struct Answer {
  decide::Canvas canvas;
  std::vector<std::vector<double>> probabilities;  // by slot and label
  size_t prompt_tokens = 0;
  uint64_t seed = 0;
  double seconds = 0.0;  // of the pass
  std::string device;

  size_t best(size_t slot) const {
    const auto& p = probabilities[slot];
    return static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  }
};

std::vector<int32_t> prompt_tokens(const Options& options, const text::Tokenizer& tokenizer) {
  std::vector<text::Message> messages;
  if (!options.system.empty()) messages.emplace_back("system", options.system);
  messages.emplace_back("user", input_text(options.prompt, options.prompt_file.value_or("-")));
  text::ChatOptions chat;
  chat.revision = need(text::checkpoint_revision(options.model), options.model);
  return tokenizer.encode(text::render_chat(messages, chat));
}

Answer answer(const Options& options) {
  const auto form = need(decide::parse_answer_template(input_text(options.answer, options.answer_file.value_or(""))), "");
  const auto tokenizer = need(text::Tokenizer::load(options.model), "");
  const std::vector<int32_t> prompt = prompt_tokens(options, tokenizer);
  const auto checkpoint = load_checkpoint_or_exit(options.model, options.device);

  Answer result;
  result.canvas = need(decide::make_canvas(form, tokenizer, prompt, checkpoint->config.canvas_length), "");
  result.prompt_tokens = prompt.size();
  result.seed = options.seed.value_or(decide::content_seed(prompt, result.canvas));

  const auto device = make_device_or_exit(options.device);
  result.device = device->name();
  model::Model model(checkpoint, device);
  const auto start = std::chrono::steady_clock::now();
  result.probabilities = need(decide::read(model, prompt, result.canvas, {result.seed, options.samples}), "");
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// A share of 1 as a bar of at most 20 characters, in eighths.
std::string bar(double share) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(share * 160.0 + 0.5);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

// Code points, which is near enough to columns for labels and names.
size_t columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void print_table(const Answer& answer, int samples) {
  const bool colours = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  size_t width = 1;
  for (const auto& slot : answer.canvas.slots) {
    for (const std::string& label : slot.labels) width = std::max(width, columns(label));
  }
  for (size_t i = 0; i < answer.canvas.slots.size(); ++i) {
    const decide::Canvas::Slot& slot = answer.canvas.slots[i];
    fmt::print("{}{}{}\n", colours ? "\x1b[1m" : "", slot.name, colours ? "\x1b[0m" : "");
    for (size_t label = 0; label < slot.labels.size(); ++label) {
      const double p = answer.probabilities[i][label];
      const bool best = label == answer.best(i);
      const std::string padding(width - columns(slot.labels[label]), ' ');
      const std::string row =
          fmt::format("{} {}{}  {:>6.2f} %  {}", best ? '>' : ' ', slot.labels[label], padding, 100.0 * p, bar(p));
      fmt::print("{}{}{}\n", colours && best ? "\x1b[32m" : "", row.substr(0, row.find_last_not_of(' ') + 1),
                 colours && best ? "\x1b[0m" : "");
    }
  }
  fmt::print("\n{} prompt tokens, canvas of {}, {} of slot noise, seed {}; {:.1f} ms on {}\n", answer.prompt_tokens,
             answer.canvas.tokens.size(), samples == 1 ? "1 draw" : fmt::format("{} draws", samples), answer.seed,
             1e3 * answer.seconds, answer.device);
}

void print_json(const Answer& answer, int samples) {
  json::Array slots;
  for (size_t i = 0; i < answer.canvas.slots.size(); ++i) {
    const decide::Canvas::Slot& slot = answer.canvas.slots[i];
    json::Object probabilities;
    for (size_t label = 0; label < slot.labels.size(); ++label) {
      probabilities.emplace_back(slot.labels[label], answer.probabilities[i][label]);
    }
    slots.push_back(json::Object{
        {"name", slot.name}, {"answer", slot.labels[answer.best(i)]}, {"probabilities", std::move(probabilities)}});
  }
  const json::Value all = json::Object{{"slots", std::move(slots)},
                                       {"prompt_tokens", static_cast<uint64_t>(answer.prompt_tokens)},
                                       {"canvas_tokens", static_cast<uint64_t>(answer.canvas.tokens.size())},
                                       {"samples", samples},
                                       {"seed", answer.seed},
                                       {"seconds", answer.seconds},
                                       {"device", answer.device}};
  fmt::print("{}\n", json::write(all, 2));
}

void run_command(Options options) {
  if (options.dash) {
    if (*options.dash != "-")
      throw Exit(kBadInput, "expected '-' for a prompt on standard input, got '" + *options.dash + "'");
    options.prompt_file = "-";
  }
  if (!options.prompt && !options.prompt_file)
    throw Exit(kBadInput, "give a prompt: --prompt TEXT, --prompt-file FILE, or -");
  if (!options.answer && !options.answer_file)
    throw Exit(kBadInput, "give an answer template: --answer TEXT or --answer-file FILE");
  if (options.prompt_file == "-" && options.answer_file == "-") {
    throw Exit(kBadInput, "the prompt and the answer template cannot both come from standard input");
  }
  const Answer result = answer(options);
  if (options.as_json) {
    print_json(result, options.samples);
  } else {
    print_table(result, options.samples);
  }
}

}  // namespace

void add_read(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("read", "Read the answers to the questions in a prompt, in one pass");
  command->add_option("--model", options->model, "Checkpoint directory, with its tokenizer.json")->required();
  CLI::Option* prompt = command->add_option("--prompt", options->prompt, "The user's message");
  CLI::Option* prompt_file =
      command->add_option("--prompt-file", options->prompt_file, "A file that holds it; - is standard input");
  CLI::Option* dash = command->add_option("STDIN", options->dash, "-: the prompt comes from standard input");
  prompt->excludes(prompt_file)->excludes(dash);
  prompt_file->excludes(dash);
  CLI::Option* answer = command->add_option("--answer", options->answer, "The answer template, as in 'urgent: [yes|no]'");
  CLI::Option* answer_file =
      command->add_option("--answer-file", options->answer_file, "A file that holds it; - is standard input");
  answer->excludes(answer_file);
  command->add_option("--system", options->system, "A system message");
  command->add_option("--seed", options->seed, "Seed of the slot noise; if not given, it follows from prompt and template");
  command->add_option("--samples", options->samples, "Draws of slot noise to average over, in the same pass")
      ->check(CLI::Range(1, decide::kMaxSamples))
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "Print the result as JSON");
  options->device.add_to(*command);
  command->footer(kFooter);
  command->callback([options] { run_command(*options); });
}

}  // namespace dgem::cli
