// The members of Json that other files only declare. Without the precompiled header, which declares them,
// too.
#define TEMPER_JSON_BODIES
#include "src/core/json/library.h"

namespace nlohmann {
#define TEMPER_INSTANCE(specialization, member) template member;
TEMPER_JSON_MEMBERS(TEMPER_INSTANCE)
#undef TEMPER_INSTANCE
}  // namespace nlohmann
