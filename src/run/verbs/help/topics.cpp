#include "src/run/verbs/help/topics.h"

#include <array>

namespace temper {
namespace {

// Each file is one text in R"(...)".
// clang-format off
constexpr std::array kPages{
    TopicPage{"quickstart",
#include "src/run/verbs/help/topics/quickstart.txt"
    },
    TopicPage{"data",
#include "src/run/verbs/help/topics/data.txt"
    },
    TopicPage{"train",
#include "src/run/verbs/help/topics/train.txt"
    },
    TopicPage{"algorithm",
#include "src/run/verbs/help/topics/algorithm.txt"
    },
    TopicPage{"resume",
#include "src/run/verbs/help/topics/resume.txt"
    },
    TopicPage{"rewards",
#include "src/run/verbs/help/topics/rewards.txt"
    },
    TopicPage{"agents",
#include "src/run/verbs/help/topics/agents.txt"
    },
    TopicPage{"layouts",
#include "src/run/verbs/help/topics/layouts.txt"
    },
    TopicPage{"async",
#include "src/run/verbs/help/topics/async.txt"
    },
    TopicPage{"memory",
#include "src/run/verbs/help/topics/memory.txt"
    },
    TopicPage{"slurm",
#include "src/run/verbs/help/topics/slurm.txt"
    },
    TopicPage{"mpirun",
#include "src/run/verbs/help/topics/mpirun.txt"
    },
    TopicPage{"metrics",
#include "src/run/verbs/help/topics/metrics.txt"
    },
    TopicPage{"trackers",
#include "src/run/verbs/help/topics/trackers.txt"
    },
    TopicPage{"trl",
#include "src/run/verbs/help/topics/trl.txt"
    },
    TopicPage{"verl",
#include "src/run/verbs/help/topics/verl.txt"
    },
    TopicPage{"troubleshooting",
#include "src/run/verbs/help/topics/troubleshooting.txt"
    },
};
// clang-format on

}  // namespace

std::span<const TopicPage> topic_pages() { return kPages; }

std::string_view topic_text(std::string_view name) {
  for (const TopicPage& page : kPages)
    if (page.name == name) return page.text;
  return {};
}

}  // namespace temper
