# temper: one binary. `make help` lists the targets; everything is built under build/.
MODE ?= release
CUDA_HOME ?= /usr/local/cuda
CUDA ?= $(if $(wildcard $(CUDA_HOME)/bin/nvcc),1,0)
ARCH ?= native
PREFIX ?= /usr/local
MPICXX ?= mpicxx
NVCC ?= $(CUDA_HOME)/bin/nvcc

B := build/$(MODE)-cuda$(CUDA)
FLAGS.release := -O3 -g1
FLAGS.debug := -O0 -g
FLAGS.asan := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer
WARN := -Wall -Wextra -Wshadow -Werror
PKG := hdf5 spdlog libpcre2-8
HDF5_FLAGS := $(shell pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null || echo -I/usr/include/hdf5/serial)
HDF5_LIBS := $(shell pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || echo -lhdf5_serial)
CPPFLAGS := -I. $(DEPS_PREFIX:%=-I%/include) -MMD -MP -DTOML_HEADER_ONLY=1 -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL $(EXTRA_CPPFLAGS)
CXXFLAGS := -std=c++20 -march=$(ARCH) -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp $(FLAGS.$(MODE)) $(WARN)
LDFLAGS := -fopenmp $(FLAGS.$(MODE)) $(DEPS_PREFIX:%=-L%/lib)
LDLIBS := -lspdlog -lfmt -lpcre2-8 -lutf8proc -lxxhash $(HDF5_LIBS) -lpthread

# ONLY="src/core src/data" builds and links tests against these folders or files alone (work on one room while another is open).
ONLY ?= src kernels/cpu
LIB := $(B)/libtemper$(if $(filter-out src kernels/cpu,$(ONLY)),-$(firstword $(shell echo "$(ONLY)" | md5sum))).a
SRC := $(filter-out src/main.cpp,$(shell find $(ONLY) -name '*.cpp' 2>/dev/null))
OBJ := $(SRC:%=$(B)/%.o)
TESTS := $(patsubst %.cpp,$(B)/%,$(shell find tests -name '*_test.cpp' 2>/dev/null))
TESTLIB := $(patsubst %.cpp,$(B)/%.cpp.o,$(shell find tests/support -name '*.cpp' 2>/dev/null))

all: build/temper
build/temper: $(B)/temper
	@ln -sfn $(MODE)-cuda$(CUDA)/temper build/temper
$(LIB): $(OBJ)
	@rm -f $@; ar rcs $@ $^
$(B)/temper: $(B)/src/main.cpp.o $(LIB)
	@echo "  LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/src/io/%.cpp.o: CPPFLAGS += $(HDF5_FLAGS)
$(B)/%.cpp.o: %.cpp
	@mkdir -p $(@D); echo "  CXX   $<"; $(MPICXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
$(B)/tests/%_test: $(B)/tests/%_test.cpp.o $(TESTLIB) $(LIB)
	@echo "  LINK  $@"; $(MPICXX) $(LDFLAGS) -o $@ $^ -lgtest $(LDLIBS)
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
