#include "src/data/jinja/evaluate/output.h"

#include "src/core/check.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {

void Output::emit(std::string_view text) {
  runtime_.handle(text.size());
  const int64_t limit = runtime_.limits().output_bytes;
  if (static_cast<int64_t>(out_->size() + text.size()) > limit)
    runtime_.fail(fmt::format("the rendered text is longer than the limit of {} bytes", limit));
  out_->append(text);
}

void Output::print(const Value& value) {
  if (const auto text = as_text(value)) return emit(*text);
  emit(to_text(runtime_, value));
}

void Output::enter_call(const char* what) {
  if (calls_ >= runtime_.limits().depth)
    runtime_.fail(fmt::format("{} call each other deeper than {} levels", what, runtime_.limits().depth));
  ++calls_;
}

}  // namespace temper::jinja
