// Headers of others that most tests include, compiled once (Makefile). Every file includes them itself, too.
#include <gtest/gtest.h>

#include "src/precompiled.h"
