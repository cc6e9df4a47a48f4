#include <algorithm>
#include <array>

#include "compress/treatment_rows.h"

namespace ringdist {

std::span<const TreatmentRow> treatments() {
  static const std::array rows{low_rank_treatment(), codec_treatment()};
  return rows;
}

Result<TreatmentPtr> make_treatment(std::string_view argument, const std::string& spec, int size,
                                    std::optional<bool> feedback) {
  const auto row =
      std::ranges::find_if(treatments(), [&](const TreatmentRow& one) { return one.takes(spec); });
  return row->make(argument, spec, size, feedback);
}

}  // namespace ringdist
