/// The first of two units that each include every public header.
#include "all_headers.hpp"
#include "build/units.hpp"

#define UNIT first
#include "build/unit.inc"
