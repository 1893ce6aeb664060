# temper: one binary. `make help` lists the targets; everything is built under build/.
MODE ?= release
CUDA_HOME ?= /usr/local/cuda
CUDA ?= $(if $(wildcard $(CUDA_HOME)/bin/nvcc),1,0)
ARCH ?= native
PREFIX ?= /usr/local
MPICXX ?= mpicxx
NVCC ?= $(CUDA_HOME)/bin/nvcc
JOBS ?= $(shell nproc)

B := build/$(MODE)-cuda$(CUDA)
FLAGS.release := -O3 -g1
FLAGS.debug := -O0 -g
FLAGS.asan := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer
WARN := -Wall -Wextra -Wshadow -Werror
HDF5_CFLAGS = $(shell pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null || echo -I/usr/include/hdf5/serial)
HDF5_LIBS = $(shell pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || echo -lhdf5_serial)
CPPFLAGS := -I. $(DEPS_PREFIX:%=-I%/include) -MMD -MP -DTOML_HEADER_ONLY=1 -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL $(EXTRA_CPPFLAGS)
# No fused multiply-add that the source does not write: the bits of a result are part of the interface.
CXXFLAGS := -std=c++20 -march=$(ARCH) -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp $(FLAGS.$(MODE)) $(WARN)
NVFLAGS := -std=c++20 --fmad=false -gencode=arch=compute_90a,code=sm_90a -O3
LDFLAGS := -fopenmp $(FLAGS.$(MODE)) $(DEPS_PREFIX:%=-L%/lib)
LDLIBS = -lspdlog -lfmt -lpcre2-8 -lutf8proc -lxxhash $(HDF5_LIBS) -lpthread
COMMIT := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

# ONLY="src/core src/data" builds and links tests against these folders or files alone.
ONLY ?= src kernels/cpu
LIB := $(B)/libtemper$(if $(filter-out src kernels/cpu,$(ONLY)),-$(firstword $(shell echo "$(ONLY)" | md5sum))).a
SRC := $(filter-out src/main.cpp,$(shell find $(ONLY) -name '*.cpp' 2>/dev/null))
OBJ := $(SRC:%=$(B)/%.o)
ifeq ($(CUDA),1)
OBJ += $(patsubst %,$(B)/%.o,$(shell find kernels/cuda -name '*.cu' 2>/dev/null))
endif
TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests -name '*_test.cpp' 2>/dev/null))
BENCHES := $(patsubst %.cpp,$(B)/%,$(shell find tests/bench -name '*_bench.cpp' 2>/dev/null))

.PHONY: all temper deps demo test bench tests install clean help compile_commands.json
all: ## build build/temper (default)
	@$(MAKE) -j$(JOBS) --no-print-directory temper
temper: $(B)/temper
	@ln -sfn $(MODE)-cuda$(CUDA)/temper build/temper
tests: temper $(TESTS)
deps: ## install the missing distribution packages (Debian 12, Ubuntu 24.04)
	@tools/deps.sh
demo: deps ## train a tiny model on the CPU, before and after, in a few minutes
	@$(MAKE) -j$(JOBS) --no-print-directory temper
	@tools/demo.sh
test: deps ## build and run every test; the last line counts them
	@$(MAKE) -j$(JOBS) --no-print-directory tests
	@tools/run_tests.sh $(TESTS)
bench: deps ## measure kernels, a training step and decoding; prints Markdown
	@$(MAKE) -j$(JOBS) --no-print-directory temper $(BENCHES)
	@tools/bench_cpu.sh $(B)
install: all ## copy the program, configs and scripts to PREFIX
	install -D -m 755 $(B)/temper $(DESTDIR)$(PREFIX)/bin/temper
	install -d $(DESTDIR)$(PREFIX)/share/temper
	cp -r conf slurm $(DESTDIR)$(PREFIX)/share/temper/
compile_commands.json: ## database for clangd
	@$(MAKE) -nB --no-print-directory temper CUDA=0 | awk -v dir="$(CURDIR)" 'BEGIN { print "[" } \
	  match($$0, /[^ ;]*$(notdir $(MPICXX)) .* -c [^ ]+\.cpp/) { c = substr($$0, RSTART, RLENGTH); n = split(c, w, " "); gsub(/"/, "\\\"", c); \
	  printf "%s{\"directory\":\"%s\",\"command\":\"%s\",\"file\":\"%s\"}", s, dir, c, w[n]; s = ",\n" } END { print "\n]" }' > $@
clean: ## remove everything that was built
	rm -rf build
help: ## this list
	@awk -F ':.*## ' '/^[a-z_.]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' Makefile
	@echo "variables: MODE=release|debug|asan CUDA=0|1 ARCH=native JOBS=N PREFIX= DEPS_PREFIX= ONLY="

$(LIB): $(OBJ)
	@rm -f $@; ar rcs $@ $^
$(B)/temper: $(B)/src/main.cpp.o $(LIB)
	@echo "  LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/src/io/%.cpp.o: CPPFLAGS += $(HDF5_CFLAGS)
$(B)/src/run/version.cpp.o: CPPFLAGS += -DTEMPER_COMMIT='"$(COMMIT)"' -DTEMPER_BUILD_FLAGS='"$(MODE), -march=$(ARCH)"'
$(B)/%.cpp.o: %.cpp
	@mkdir -p $(@D); echo "  CXX   $<"; $(MPICXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
$(B)/%.cu.o: %.cu
	@mkdir -p $(@D); echo "  NVCC  $<"; $(NVCC) -ccbin $(MPICXX) $(CPPFLAGS) $(NVFLAGS) -c $< -o $@
$(B)/tests/%_test: $(B)/tests/%_test.cpp.o $(LIB)
	@echo "  LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ -lgtest $(LDLIBS)
$(B)/tests/%_bench: $(B)/tests/%_bench.cpp.o $(LIB)
	@echo "  LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
