#include "runtime/run.h"

#include "runtime/chat.h"
#include "runtime/dump.h"
#include "runtime/expert_report.h"
#include "runtime/observers.h"
#include "runtime/trace_recorder.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

constexpr int64_t kLargestPromptBytes = int64_t{1} << 30;

std::string prompt_text(const RunOptions& options) {
  if (!options.prompt_path) return options.prompt.value_or("");
  const std::vector<std::byte> bytes = read_whole_file(*options.prompt_path, kLargestPromptBytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The tokens to feed. BOS opens a text, so it is neither added to a state that goes on nor to ids.
std::vector<int32_t> prompt_ids(const RunOptions& options, const Tokenizer& tokenizer,
                                bool continues) {
  if (options.ids) return *options.ids;
  const std::string text = prompt_text(options);
  if (options.chat) {
    std::vector<ChatMessage> messages;
    if (options.system) messages.push_back({.role = ChatRole::kSystem, .content = *options.system});
    messages.push_back({.role = ChatRole::kUser, .content = text});
    return encode_chat(tokenizer, messages,
                       options.instruct ? ChatMode::kInstruct : ChatMode::kThinking);
  }
  std::vector<int32_t> ids;
  if (tokenizer.adds_bos() && !continues) ids.push_back(tokenizer.bos_id());
  const std::vector<int32_t> encoded = tokenizer.encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

void write_ids(JsonWriter& json, std::string_view name, std::span<const int32_t> ids) {
  json.key(name);
  json.begin_array();
  for (int32_t id : ids) json.value(id);
  json.end_array();
}

void write_json(const Generation& generation, std::span<const int32_t> prompt, LoadedModel& model,
                std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("text", generation.text);
  json.member("finish_reason", generation.finish_reason);
  write_ids(json, "prompt_ids", prompt);
  write_ids(json, "ids", generation.ids);
  json.member("prefill_seconds", generation.prefill_seconds);
  json.member("decode_seconds", generation.decode_seconds);
  json.member("backend", model.backend().name());
  json.member("layers", std::ssize(model.config().layers));
  begin_experts(json, model.experts(), model.experts().statistics());
  json.end_object();
  json.member("pack_payload_xxh3", hex_digits(model.pack().payload_xxh3()));
  json.end_object();
  out << '\n';
}

// The prompt is a document of its own, and what is generated continues it.
void announce_prompt(TraceRecorder& trace, std::span<const int32_t> prompt, int64_t position) {
  const uint32_t document =
      trace.add_document({.xxh3 = xxh3(std::as_bytes(prompt)), .domain = "prompt"});
  std::vector<TraceToken> tokens(prompt.size());
  auto next = static_cast<uint32_t>(position);
  for (TraceToken& token : tokens) token = {document, next++, TracePhase::kPrefill};
  trace.announce(tokens, {document, next, TracePhase::kDecode});
}

}  // namespace

void run(const RunOptions& options, std::ostream& out) {
  LoadedModel model(options.load);
  const uint64_t payload = model.pack().payload_xxh3();
  const bool continues = !options.load_state_path.empty();
  SequenceState state = continues ? load_state(model.config(), payload, options.load_state_path)
                                  : SequenceState(model.config());
  const auto first_position = static_cast<size_t>(state.positions());
  const std::vector<int32_t> prompt = prompt_ids(options, model.tokenizer(), continues);

  GenerateOptions generate_options = options.generate;
  generate_options.end_ids.push_back(static_cast<int32_t>(model.config().eos_token_id));
  if (const auto end = end_of_message_id(model.tokenizer()))
    generate_options.end_ids.push_back(*end);

  std::vector<RunObserver*> watching;
  std::optional<Dump> dump;
  if (!options.dump_path.empty()) watching.push_back(&dump.emplace(model.config()));
  std::optional<TraceRecorder> trace;
  if (!options.trace_path.empty()) {
    trace.emplace(options.trace_path, model.pack(), model.config(), model.plan().has_value());
    announce_prompt(*trace, prompt, state.positions());
    watching.push_back(&*trace);
  }
  Observers observers(watching);
  const Generation generation = generate(
      model.forward(), state, model.tokenizer(), prompt, generate_options,
      [&](std::string_view text) {
        if (!options.json) out << text << std::flush;
      },
      watching.empty() ? nullptr : &observers);
  if (trace) trace->finish();
  if (dump) {
    dump->write(options.dump_path, std::span(state.ids).subspan(first_position));
  }
  if (!options.save_state_path.empty()) {
    state.bring_home(model.config());
    save_state(state, model.config(), payload, options.save_state_path);
  }
  if (options.json) {
    write_json(generation, prompt, model, out);
  } else if (!generation.text.empty()) {
    out << '\n';
  }
}

}  // namespace k3
