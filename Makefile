# temper: one binary. `make help` lists the targets; everything is built under build/.
MODE ?= release
CUDA_HOME ?= /usr/local/cuda
CUDA ?= $(if $(wildcard $(CUDA_HOME)/bin/nvcc),1,0)
ARCH ?= native
PREFIX ?= /usr/local
MPICXX ?= mpicxx
CLANGXX ?= clang++
NVCC ?= $(CUDA_HOME)/bin/nvcc
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

B := build/$(MODE)-cuda$(CUDA)$(if $(filter-out native,$(ARCH)),-$(ARCH))
FLAGS.release := -O2 -g1
FLAGS.debug := -O0 -g
FLAGS.tsan := -O1 -g -fsanitize=thread
# g++ takes the checks of the sanitizers for ways to memory that is not set.
FLAGS.asan := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer -Wno-maybe-uninitialized
# Of clang, without OpenMP: `make fuzz` builds with it what reads files.
FLAGS.fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=all \
  -fno-omit-frame-pointer -fno-openmp
# g++ 12 and 13 see overflows inside fmt 9 (its big integers, behind spdlog) and in moves of short strings that never happen.
WARN := -Wall -Wextra -Wshadow -Werror -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
HDF5_FLAGS := $(shell pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null || echo -I/usr/include/hdf5/serial)
HDF5_LIBS := $(shell pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || echo -lhdf5_serial)
CPPFLAGS := -I. $(DEPS_PREFIX:%=-I%/include) -MMD -MP -DTOML_HEADER_ONLY=1 -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL $(EXTRA_CPPFLAGS)
# No fused multiply-add that the source does not write: the bits of a result are part of the interface.
HOSTFLAGS := -march=$(ARCH) -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd -pthread
CXXFLAGS := -std=c++20 $(HOSTFLAGS) $(FLAGS.$(MODE)) $(WARN)
# Headers of others that most files include, compiled once for src/ and once for tests. Nothing but time depends on it:
# sources include what they use, and PCH=0 (always for clang) builds without. ccache takes a precompiled header only with
# these settings, and knows it by PCH.sum, as its bytes are others every time.
PCH ?= 1
PCH_OF.src := $(B)/precompiled/src.h
PCH_OF.tests := $(B)/precompiled/tests.h
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
export CCACHE_PCH_EXTSUM ?= 1
# g++ looks for garbage when it holds 128 MB, which the headers fill by themselves: an eighth of its time.
SPEED := $(if $(findstring clang,$(MPICXX)),,--param ggc-min-heapsize=524288)
LDFLAGS := -pthread $(FLAGS.$(MODE)) $(DEPS_PREFIX:%=-L%/lib)
LDLIBS := -lspdlog -lfmt -lpcre2-8 -lutf8proc -lxxhash -lzstd -lmicrohttpd $(HDF5_LIBS) -lpthread

# ONLY="src/core src/data" builds and links tests against these folders or files alone (work on one room while another is open).
ONLY ?= src kernels/cpu kernels/planned
WHOLE := src kernels/cpu kernels/planned
LIB := $(B)/libtemper$(if $(filter-out $(WHOLE),$(ONLY)),-$(firstword $(shell echo "$(ONLY)" | md5sum))).a
# version.cpp names the commit: outside the library, so that a commit does not link every test again.
SRC := $(filter-out src/main.cpp src/run/verbs/version.cpp,$(shell find $(ONLY) -name '*.cpp' 2>/dev/null))
OBJ := $(SRC:%=$(B)/%.o)
MAIN := $(B)/src/main.cpp.o $(B)/src/run/verbs/version.cpp.o
TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests -name '*_test.cpp' -not -path 'tests/gpu/*' -not -path 'tests/long/*' -not -path 'tests/layouts/*' -not -path 'tests/learn/*' 2>/dev/null))
LONG_TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests/long -name '*_test.cpp' 2>/dev/null))
LAYOUT_TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests/layouts -name '*_test.cpp' 2>/dev/null))
LEARN_TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests/learn -name '*_test.cpp' 2>/dev/null))
CHAOS_TESTS := $(filter $(B)/tests/chaos/%,$(TESTS))
GPU_TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests/gpu -name '*_test.cpp' 2>/dev/null))
# Tests of ops once more, on the GPU: those that have a case for every backend (tests/support/check_op.h).
GPU_OP_TESTS := $(patsubst tests/ops/%.cpp,$(B)/tests/gpu/ops/%,$(shell grep -l '^TEST\>' tests/ops/*_test.cpp tests/ops/hybrid/*_test.cpp 2>/dev/null))
FUZZERS := $(patsubst %.cpp,$(B)/%,$(shell find tests/fuzz -name '*_fuzz.cpp' 2>/dev/null))
BENCHES := $(patsubst %.cpp,$(B)/%,$(shell find tests -name '*_bench.cpp' -not -path 'tests/gpu/*' 2>/dev/null))
GPU_BENCHES := $(patsubst %.cpp,$(B)/%,$(shell find tests/gpu -name '*_bench.cpp' 2>/dev/null))
TESTLIB := $(patsubst %.cpp,$(B)/%.cpp.o,$(shell find tests/support -name '*.cpp' 2>/dev/null))
ALL_OBJ := $(OBJ) $(MAIN) $(TESTLIB) $(TESTS:%=%.cpp.o) $(LONG_TESTS:%=%.cpp.o) $(LAYOUT_TESTS:%=%.cpp.o) $(LEARN_TESTS:%=%.cpp.o) $(GPU_TESTS:%=%.cpp.o) $(BENCHES:%=%.cpp.o) $(GPU_BENCHES:%=%.cpp.o) $(FUZZERS:%=%.cpp.o)

# CUDA kernels are compiled where nvcc is. -gencode, not -arch: only the former lets wgmma through.
CU := $(if $(filter 1,$(CUDA)),$(shell find kernels/cuda -name '*.cu' 2>/dev/null))
ifneq ($(CU),)
NVFLAGS.release := -O3 -lineinfo
NVFLAGS.debug := -O0 -G
NVFLAGS.asan := -O1 -lineinfo
NVFLAGS.tsan := -O1 -lineinfo
NVFLAGS := -std=c++20 -DFMT_USE_CONSTEXPR=1 -diag-suppress 1675 --fmad=false -gencode=arch=compute_90a,code=sm_90a $(NVFLAGS.$(MODE)) -Xcompiler "$(HOSTFLAGS)"
CPPFLAGS += -DTEMPER_CUDA -I$(CUDA_HOME)/include
# cuBLASLt is opened at run time: the program starts without it, and without a driver.
LDLIBS += -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -Wl,-rpath,$(CUDA_HOME)/lib64
CUDA_HOST := $(shell find kernels/cuda -name '*.cpp' 2>/dev/null)
OBJ += $(if $(filter-out $(WHOLE),$(ONLY)),,$(CU:%=$(B)/%.o) $(CUDA_HOST:%=$(B)/%.o))
endif

# [n/m]: the n-th command that this make starts, of the m that a make of the same goals would: counted before the first.
ifdef COUNTING
STEP = [step]
else
COUNT = $(shell MAKEFLAGS= $(MAKE) -n$(findstring B,$(firstword -$(MAKEFLAGS))) COUNTING=1 $(MAKEOVERRIDES) $(MAKECMDGOALS) 2>/dev/null | grep -cF '[step]')
STEP = $(if $(TOTAL),,$(eval TOTAL := $(COUNT)))$(eval STARTED += x)[$(words $(STARTED))/$(TOTAL)]
endif

all: build/temper
# Always: make sees the time of the program behind the link, which may be that of another mode.
build/temper: $(B)/temper FORCE
	@ln -sfn $(B:build/%=%)/temper build/temper
# A package that is missing is said in one line, not by the compiler in the middle of everything.
$(OBJ) $(MAIN): | $(B)/has-zstd $(B)/has-microhttpd
$(B)/has-%:
	@mkdir -p $(@D); echo 'int main() {}' | $(MPICXX) $(filter-out -MMD -MP,$(CPPFLAGS)) -include $*.h -x c++ - -o $@ $(LDFLAGS) -l$* > $@.log 2>&1 || \
	  { echo "$*.h or lib$* is missing: run \`make deps\` (package lib$*-dev), or build with DEPS_PREFIX=DIR (DIR/include, DIR/lib); see $@.log" >&2; exit 1; }
$(LIB): $(OBJ)
	@rm -f $@; ar rcsT $@ $^
$(B)/temper: $(MAIN) $(LIB)
	@echo "$(STEP) LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/src/io/%.cpp.o $(B)/tests/io/%.cpp.o: private CPPFLAGS += $(HDF5_FLAGS)
ifeq ($(MODE),release)
$(B)/kernels/%.cpp.o: CXXFLAGS += -O3
# With -O1 g++ 12 takes sets in structs that are copied for memory that is not set.
$(B)/tests/%_test.cpp.o $(PCH_OF.tests).gch: private CXXFLAGS += -O1 -g0 -Wno-maybe-uninitialized
$(B)/tests/%_bench.cpp.o: CXXFLAGS += -O3
endif
$(B)/src/run/verbs/version.cpp.o: private CPPFLAGS += -DTEMPER_COMMIT='"$(COMMIT)"' -DTEMPER_BUILD_FLAGS='"$(CXXFLAGS)"'
$(B)/src/run/verbs/version.cpp.o: $(B)/commit
ifeq ($(PCH)$(findstring clang,$(MPICXX)),1)
PCH_OBJ.src := $(filter-out %/json/members.cpp.o,$(filter $(B)/src/%,$(OBJ) $(MAIN)))
PCH_OBJ.tests := $(filter %_test.cpp.o,$(ALL_OBJ)) $(GPU_OP_TESTS:%=%.cpp.o)
$(foreach p,src tests,$(eval $(PCH_OBJ.$(p)): PCH_FLAGS := -include $(PCH_OF.$(p)) -Winvalid-pch -Wno-error=invalid-pch))
$(foreach p,src tests,$(eval $(PCH_OBJ.$(p)): $(PCH_OF.$(p)).gch))
$(B)/precompiled/%.h.gch: %/precompiled.h | $(B)/has-zstd
	@mkdir -p $(@D); echo "$(STEP) CXX   $<"; cp $< $(@:.gch=); $(MPICXX) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CXXFLAGS) -E -P $< | md5sum > $@.sum; \
	  $(MPICXX) $(CPPFLAGS:-MMD=-MD) $(CXXFLAGS) $(SPEED) -x c++-header -c $< -o $@
endif
$(B)/%.cpp.o: %.cpp
	@mkdir -p $(@D); echo "$(STEP) CXX   $<"; $(MPICXX) $(PCH_FLAGS) $(SPEED) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
$(B)/tests/gpu/ops/%.cpp.o: CPPFLAGS += -DTEMPER_TEST_GPU
$(B)/tests/gpu/ops/%.cpp.o: tests/ops/%.cpp
	@mkdir -p $(@D); echo "$(STEP) CXX   $< for the GPU"; $(MPICXX) $(PCH_FLAGS) $(SPEED) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
$(B)/%.cu.o: %.cu
	@mkdir -p $(@D); echo "$(STEP) NVCC  $<"; $(NVCC) -ccbin $(MPICXX) $(CPPFLAGS) $(NVFLAGS) -c $< -o $@
$(B)/tests/%_test: $(B)/tests/%_test.cpp.o $(TESTLIB) $(LIB)
	@echo "$(STEP) LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lgtest $(LDLIBS)
# Lets file calls of the program go wrong: tests/chaos loads it into runs.
$(B)/tests/chaos/fault_shim.so: tests/chaos/fault_shim.cpp
	@mkdir -p $(@D); echo "$(STEP) LINK  $@"; $(MPICXX) -std=c++20 -O1 -fPIC -shared $(WARN) -o $@ $< -ldl
$(foreach t,save_faults lock finalize changed_inputs,$(B)/tests/chaos/$(t)_test): | $(B)/tests/chaos/fault_shim.so
$(B)/tests/e2e/%_shim.so: tests/e2e/%_shim.cpp
	@mkdir -p $(@D); echo "$(STEP) LINK  $@"; $(MPICXX) -std=c++20 -O1 -fPIC -shared $(WARN) -o $@ $<
$(B)/tests/e2e/signals_test: | $(B)/tests/e2e/hangup_shim.so
$(B)/tests/e2e/local_test: | $(foreach s,early_death thread,$(B)/tests/e2e/$(s)_shim.so)
$(B)/tests/%_fuzz: $(B)/tests/%_fuzz.cpp.o $(LIB)
	@echo "$(STEP) LINK  $@"; $(MPICXX) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)
# The one part of the CUDA backend that needs no CUDA: tested in every build.
$(B)/tests/kernels/choice_file_test: $(if $(CU),,$(B)/kernels/cuda/choice_file.cpp.o)
$(B)/tests/%_bench: $(B)/tests/%_bench.cpp.o $(LIB)
	@echo "$(STEP) LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ $(BENCH_LIBS) $(LDLIBS)
$(B)/tests/gpu/%_bench: BENCH_LIBS := -lgtest
$(B)/tests/gpu/tp_bench: BENCH_LIBS := -lcupti
$(foreach b,train model hybrid/delta_backward hybrid/mixer,$(B)/tests/gpu/$(b)_bench): BENCH_LIBS := -lgtest -lcupti
$(B)/tests/gpu/link_bench: BENCH_LIBS := -lgtest -lnccl
$(foreach b,model elementwise experts hybrid/delta_rule hybrid/hybrid_rows,$(B)/tests/gpu/$(b)_bench): $(B)/tests/gpu/read_rate.cu.o
$(B)/tests/gpu/hybrid/delta_rule_bench: $(B)/tests/gpu/hybrid/recurrence.cu.o
$(B)/tests/gpu/lane_test $(foreach t,collectives_mpi2 collectives_mpi3 hosts_mpi2 hosts_mpi3 peers_mpi4,$(B)/tests/gpu/$(t)_test): $(B)/tests/gpu/late_writer.cu.o

COMMIT = $(or $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null),unknown)
$(B)/commit: $(if $(filter "$(COMMIT)","$(shell cat $(B)/commit 2>/dev/null)"),,FORCE)
	@mkdir -p $(@D); echo "$(COMMIT)" > $@

# deps may install what the variables above look for, so what follows it is a make of its own.
deps:
	@tools/deps.sh "$(DEPS_PREFIX)"
test: deps
	@$(MAKE) --no-print-directory build/temper tests
	@$(MAKE) --no-print-directory CUDA=0 PCH=0 WITH=$(B) without-cuda
	@tools/run_tests.sh $(B)
# What is another without CUDA, linked with what was built with it: it compiles and links on a machine that has none.
WITHOUT_CUDA := $(patsubst %,$(B)/%.o,$(shell grep -rlE --include='*.cpp' 'TEMPER_CUDA|ops/dispatch\.h|\<DISPATCH\>' src))
WITH ?= $(B)
without-cuda: $(if $(filter $(B),$(WITH)),$(OBJ) $(MAIN),$(WITHOUT_CUDA))
	@echo "$(STEP) LINK  $(B)/$@"; $(MPICXX) $(LDFLAGS) -o $(B)/$@ $^ $(patsubst $(B)/%,$(WITH)/%,$(filter-out $^,$(OBJ) $(MAIN))) $(LDLIBS)
# Needs a GPU: not a part of `make test`. One at a time: some take all the memory that there is.
test-gpu: deps
	@$(MAKE) --no-print-directory build/temper $(GPU_TESTS) $(GPU_OP_TESTS)
	@SUITE=gpu JOBS=1 tools/run_tests.sh $(B)
# Runs of many steps: minutes, so not a part of `make test`.
test-long: deps
	@$(MAKE) --no-print-directory build/temper $(LONG_TESTS)
	@SUITE=long LIMIT=7200 tools/run_tests.sh $(B)
# Runs of layouts on many ranks: more of them than `make test` has time for.
test-layouts: deps
	@$(MAKE) --no-print-directory build/temper $(LAYOUT_TESTS)
	@SUITE=layouts JOBS=1 LIMIT=7200 tools/run_tests.sh $(B)
# Methods (12 minutes on two cores), models of each kind (an hour) and agents learn their tasks, and from shuffled answers none.
test-learn: deps
	@$(MAKE) --no-print-directory build/temper $(LEARN_TESTS)
	@SUITE=learn JOBS=1 LIMIT=7200 tools/run_tests.sh $(B)
# Real clients from PyPI against `temper serve` and in runs, those that PYTHON has (tests/clients/run.sh lists them).
PYTHON ?= python3
test-clients: deps
	@$(MAKE) --no-print-directory build/temper
	@tests/clients/run.sh build/temper $(PYTHON)
# Updates in fp64 beside those of torch autograd (tools/golden/outside.py); PYTHON has torch, safetensors and transformers.
test-outside: deps
	@$(MAKE) --no-print-directory build/temper
	@$(PYTHON) tests/outside/run.py build/temper
# The scripts of tools/trackers in runs: with fakes, and with wandb and mlflow themselves where PYTHON has them.
test-trackers: deps
	@$(MAKE) --no-print-directory build/temper
	@$(PYTHON) tests/trackers/run.py build/temper
# As many faults as the program is held to; `make test` has a minute of them. CHAOS_SEED draws others.
chaos: deps
	@$(MAKE) --no-print-directory build/temper $(CHAOS_TESTS)
	@SUITE=chaos CHAOS=1 CHAOS_JOBS=$${CHAOS_JOBS:-$$(nproc)} JOBS=1 LIMIT=7200 OMP_NUM_THREADS=1 tools/run_tests.sh $(B)
# Data races, by the thread sanitizer: what runs on threads, and a few runs. tools/tsan.supp leaves out what is not ours.
TSAN_TESTS := $(filter $(foreach d,core ops train comm agents,$(B)/tests/$(d)/%) $(B)/tests/e2e/frozen_checkpoint_test $(B)/tests/e2e/machine_test,$(TESTS))
test-tsan: deps
	@$(MAKE) --no-print-directory MODE=tsan CUDA=0 build/temper tsan-tests
	@LIMIT=1800 tools/run_tests.sh build/tsan-cuda0 'tests/(core|ops|train|comm|agents)/|e2e/(frozen_checkpoint|machine)_test'
tsan-tests: $(TSAN_TESTS)
# Memory errors and undefined behaviour, by the sanitizers of g++: every room by its own tests, and the verbs.
ASAN_TESTS := $(filter $(foreach d,core config data io rl comm nn models train run rollout agents,$(B)/tests/$(d)/%) $(B)/tests/e2e/verbs_test $(B)/tests/e2e/exit_codes_test,$(TESTS))
test-asan: deps
	@$(MAKE) --no-print-directory MODE=asan CUDA=0 build/temper asan-tests
	@LIMIT=1800 tools/run_tests.sh build/asan-cuda0 'tests/(core|config|data|io|rl|comm|nn|models|train|run|rollout|agents)/|e2e/(verbs|exit_codes)_test'
asan-tests: $(ASAN_TESTS)
# Inputs from outside, mutated by libFuzzer for FUZZ_SECONDS of CPU each. Needs clang and its runtimes.
fuzz: deps
	@$(MAKE) --no-print-directory MODE=fuzz CUDA=0 WARN=-w MPICXX="$(CLANGXX)" ONLY="src/core src/config src/data src/io src/nn src/rl src/agents/server src/agents/turns src/agents/doors" fuzzers
	@tools/fuzz.sh build/fuzz-cuda0
fuzzers: $(FUZZERS)
# Needs Slurm and root: a cluster of this machine alone, that ends with the test.
test-slurm: deps
	@$(MAKE) --no-print-directory build/temper
	@tools/test_slurm.sh
# Both run on CPUs: kernels for a GPU are compiled for them only where the driver has one, or CUDA=1 says so.
DEMO_CUDA = $(if $(filter command environment,$(firstword $(origin CUDA))),$(CUDA),$(if $(shell nvidia-smi -L 2>/dev/null),$(CUDA),0))
demo: deps
	@$(MAKE) -n --no-print-directory COUNTING=1 CUDA=$(DEMO_CUDA) build/temper | awk -v cores=$$(nproc) \
	  '/\[step\]/ { n++; s += / NVCC / ? 40 : 2 } END { if (n) printf "== build: %d commands, about %d min on %d cores\n", n, s / 60 / cores + 1, cores }'
	@$(MAKE) --no-print-directory CUDA=$(DEMO_CUDA) build/temper
	@tools/demo.sh
# The demo's GRPO with shuffled answers, after `make demo`.
demo-control: deps
	@$(MAKE) --no-print-directory CUDA=$(DEMO_CUDA) build/temper
	@tools/demo_control.sh
# Needs a GPU: minutes of it.
learn: deps
	@$(MAKE) --no-print-directory build/temper
	@tools/learn_gpu.sh
tests: $(TESTS)
benches: $(BENCHES)
HAS_GPU := $(and $(filter 1,$(CUDA)),$(wildcard /dev/nvidiactl))
bench: deps
	@$(MAKE) --no-print-directory build/temper benches $(if $(HAS_GPU),$(GPU_BENCHES))
	@$(if $(HAS_GPU),tools/bench/bench_gpu.sh,tools/bench/bench_cpu.sh) $(B)
# Needs several GPUs, GPUS of them.
GPUS ?= 2
bench-ranks: deps
	@tools/bench/bench_ranks.sh $(B) $(GPUS) check
	@$(MAKE) --no-print-directory build/temper $(B)/tests/gpu/link_bench $(B)/tests/gpu/weights_bench $(B)/tests/gpu/train_bench
	@tools/bench/bench_ranks.sh $(B) $(GPUS)
	@tools/bench/bench_experts.sh $(B) $(GPUS)
# What the README's commands name lies below share/temper, the program as build/temper.
SHARE = "$(DESTDIR)$(PREFIX)"/share
ZSH_FOLDER = $(SHARE)/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
install: build/temper
	install -D -s -m 755 $(B)/temper "$(DESTDIR)$(PREFIX)"/bin/temper
	install -d $(SHARE)/temper/build $(SHARE)/bash-completion/completions $(ZSH_FOLDER) $(SHARE)/fish/vendor_completions.d $(SHARE)/man/man1
	cp -r conf slurm README.md $(SHARE)/temper/
	install -D -m 644 -t $(SHARE)/temper/tools/rewards tools/rewards/*.py
	install -D -m 644 -t $(SHARE)/temper/tools/trackers tools/trackers/*.py
	install -m 755 -t $(SHARE)/temper/tools tools/demo.sh tools/demo_control.sh tools/demo_data.sh tools/learn_gpu.sh tools/gsm8k_data.py
	install -m 644 tools/package/installed.mk $(SHARE)/temper/Makefile
	ln -sfn "$(PREFIX)"/bin/temper $(SHARE)/temper/build/temper
	$(B)/temper help completion bash > $(SHARE)/bash-completion/completions/temper
	$(B)/temper help completion zsh > $(ZSH_FOLDER)/_temper
	$(B)/temper help completion fish > $(SHARE)/fish/vendor_completions.d/temper.fish
	$(B)/temper help man > $(SHARE)/man/man1/temper.1
# For other machines than this one, so not for its CPU alone, unless ARCH says so.
PACKAGE_ARCH := $(if $(filter command environment,$(firstword $(origin ARCH))),$(ARCH),x86-64-v3)
package: deps
	@$(MAKE) --no-print-directory ARCH=$(PACKAGE_ARCH) build/temper
	@tools/package/package.sh $(MAKE) ARCH=$(PACKAGE_ARCH)
test-package: package
	@tools/package/test_package.sh build/package/temper.deb
compile_commands.json: FORCE
	@echo '$(ALL_OBJ)' | tr ' ' '\n' | sed 's|^$(B)/||; s|\.o$$||' | awk -v dir="$(CURDIR)" -v b="$(B)" \
	  -v cc="$(MPICXX) $(CPPFLAGS) $(HDF5_FLAGS) $(CXXFLAGS)" -v cu='$(subst ",\\",$(NVCC) $(CPPFLAGS) $(NVFLAGS))' '\
	  BEGIN { print "[" } { printf "%s{\"directory\":\"%s\",\"file\":\"%s\",\"command\":\"%s -c %s -o %s/%s.o\"}", \
	  (NR > 1 ? ",\n" : ""), dir, $$0, ($$0 ~ /\.cu$$/ ? cu : cc), $$0, b, $$0 } END { print "\n]" }' > $@
clean:
	rm -rf build compile_commands.json
help:
	@echo "make                        build/temper ($(B))"
	@echo "make deps                   installs missing packages (Debian 12, Ubuntu 24.04)"
	@echo "make test                   builds and runs every test; ends with: N passed, N failed, N skipped"
	@echo "make test-gpu               the tests that need an H100 or H200"
	@echo "make test-long              runs of many steps: their memory stays flat (half an hour)"
	@echo "make test-layouts           runs of up to 8 ranks that share a model along each axis, stopped after every step"
	@echo "make test-learn             methods, experts, a hybrid model and agents learn their tasks (hours)"
	@echo "make test-clients           openai, lm-eval, Claude Code and others (from PyPI, of PYTHON=python3) as they are"
	@echo "make test-outside           updates of each method, correction, teacher and adapters beside torch (of PYTHON=python3)"
	@echo "make test-trackers          scripts for W&B and MLflow in runs: with fakes, and the packages that PYTHON=python3 has"
	@echo "make test-tsan              data races: tests of core, comm, ops, train and agents, and runs, under the thread sanitizer"
	@echo "make test-asan              memory errors and undefined behaviour: most tests, under the sanitizers of g++"
	@echo "make chaos                  kills, signals, stops, failing file calls, changed bits, hostile clients (an hour; CHAOS_SEED=1)"
	@echo "make fuzz                   mutated inputs for every parser, FUZZ_SECONDS=600 of CPU each (clang, libclang-rt-dev)"
	@echo "make test-slurm             slurm/cpu.sbatch on a Slurm of this machine alone (root, slurm-wlm)"
	@echo "make demo                   a small model learns to add on 2 ranks, under 4 minutes"
	@echo "make demo-control           its GRPO with shuffled answers: nothing is learned"
	@echo "make learn                  products in written steps: SFT, GRPO with three seeds, on an H100 or H200"
	@echo "make bench                  speed: of the GPU where there is one, else of the CPU kernels and of a step"
	@echo "make bench-ranks GPUS=2     tensors and new weights between GPUs of one host, updates in layouts"
	@echo "make install PREFIX=DIR     DIR/bin/temper, DIR/share/temper, man page, completion (now $(PREFIX))"
	@echo "make package                build/package/temper_*.deb for CPUs of x86-64-v3 (or ARCH=...); make test-package"
	@echo "make compile_commands.json  for editors and clang-tidy"
	@echo "make clean                  removes build/"
	@echo "make $(B)/tests/ops/norm_test   one test; it runs from here"
	@echo "MODE=release|debug|asan|tsan  CUDA=0|1 (1 where nvcc is)  ARCH=native  DEPS_PREFIX=DIR (include/, lib/)  PCH=0  -j1"

.PHONY: all deps test without-cuda fuzz fuzzers test-asan asan-tests test-slurm test-gpu test-long test-layouts test-learn test-clients test-outside test-trackers test-tsan tsan-tests chaos tests demo demo-control learn bench benches bench-ranks install package test-package clean help FORCE
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
