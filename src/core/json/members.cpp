#define TEMPER_JSON_BODIES  // the members themselves, not the specializations
#include "src/core/json/members.h"

namespace nlohmann {
#define TEMPER_INSTANCE(specialization, member) template member;
TEMPER_JSON_MEMBERS(TEMPER_INSTANCE)
#undef TEMPER_INSTANCE
}  // namespace nlohmann
