/// The second of two units that each include every public header.
#include "all_headers.hpp"
#include "build/units.hpp"

#define UNIT second
#include "build/unit.inc"
