#include "src/run/exchange/shared_weights.h"

#include <cstring>
#include <map>

#include "src/io/elements.h"

namespace temper {
namespace {

constexpr int64_t kPiece = int64_t{1} << 19;  // elements that are asked for at once

struct Request {
  int64_t parameter = -1, first = 0, count = 0;  // elements of the whole parameter; -1: done
};

/// Elements of `request` that a rank is the first to have, in order: see(first element of the whole, count,
/// its own first element).
template <class See>
void for_each_owned(const ParamSpec& spec, const Request& request, const Holders& holders, int number,
                    See&& see) {
  if (holders.grid.at(number, spec.summed_over) != 0) return;
  const ShardPlace of = holders.place(number);
  const int64_t width = spec.size() / spec.shape[0];
  for (const RowSpan& span : row_spans(spec, of)) {
    if (span.first_rank != of.rank || span.copy) continue;
    const int64_t begin = std::max(request.first, span.whole * width),
                  end = std::min(request.first + request.count, (span.whole + span.rows) * width);
    if (begin < end) see(begin, end - begin, begin + (span.own - span.whole) * width);
  }
}

/// What the ranks have sent, in its places.
void put_together(const std::vector<std::string>& parts, const Holders& holders, const ParamSpec& spec,
                  const Request& asked, DType held, const Tensor& destination) {
  const int64_t item = dtype_size(held), to_item = dtype_size(destination.dtype);
  for (int rank = 0; rank < holders.grid.size(); ++rank) {
    const char* from = parts[static_cast<size_t>(rank)].data();
    for_each_owned(spec, asked, holders, rank, [&](int64_t begin, int64_t n, int64_t) {
      convert_elements(static_cast<char*>(destination.raw()) + (begin - asked.first) * to_item,
                       destination.dtype, from, held, n);
      from += n * item;
    });
  }
}

class Exchange {
 public:
  Exchange(const SharedModel& model, const ParameterStore& own, const HeldPart& held)
      : model_(model), own_(own), held_(held), windows_(own.device()) {}

  CTensor held(int64_t parameter) const { return held_(own_.list()[static_cast<size_t>(parameter)]); }

  /// What every rank has of what rank 0 asks for; nothing when it is done. `asked`: of rank 0.
  std::vector<std::string> answer(Request& asked) {
    const std::string bytes = model_.ranks.broadcast({reinterpret_cast<const char*>(&asked), sizeof asked}, 0,
                                                     "elements that are asked for");
    std::memcpy(&asked, bytes.data(), sizeof asked);
    if (asked.parameter < 0) return {};
    const Parameter& p = own_.list()[static_cast<size_t>(asked.parameter)];
    const CTensor own = held(asked.parameter);
    const int64_t item = dtype_size(own.dtype);
    const char* const begin = static_cast<const char*>(own.data);
    std::string mine;
    for_each_owned(
        p.spec, asked, model_.holders, model_.ranks.rank(), [&](int64_t, int64_t count, int64_t at) {
          windows_.read(begin + at * item, count * item,
                        [&](const char* from, int64_t n) { mine.append(from, static_cast<size_t>(n)); });
        });
    return model_.ranks.all_gather(mine, "elements of whole parameters, copied from their owners");
  }

 private:
  const SharedModel& model_;
  const ParameterStore& own_;
  const HeldPart& held_;
  device::HostWindows windows_;
};

}  // namespace

void read_shared(const SharedModel& model, const ParameterStore& own, const HeldPart& held,
                 const std::function<void(const ElementReader&)>& use) {
  Exchange exchange(model, own, held);
  Request request;
  if (model.ranks.rank() != 0) {
    do exchange.answer(request);
    while (request.parameter >= 0);
    return;
  }
  std::map<std::string, int64_t> index;
  for (const Parameter& p : own.list()) index.emplace(p.spec.name, static_cast<int64_t>(index.size()));
  use([&](const ParamSpec& spec, int64_t first, int64_t count, const Tensor& destination) {
    for (int64_t at = 0; at < count; at += kPiece) {
      Request asked{index.at(spec.name), first + at, std::min(kPiece, count - at)};
      const DType dtype = exchange.held(asked.parameter).dtype;
      put_together(exchange.answer(asked), model.holders, spec, asked, dtype,
                   rows(destination, at, at + asked.count));
    }
  });
  exchange.answer(request);
}

}  // namespace temper
