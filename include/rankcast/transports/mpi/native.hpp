/// MPI's own header, without the C++ bindings of old that some builds still carry (the target
/// rankcast::mpi sets the same definitions, for units that include mpi.h first), and its error
/// codes as exceptions.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <string>

#include "rankcast/core/error.hpp"

namespace rankcast::inline v0::mpi {

/// Throws transport_error with MPI's own text unless `code` is MPI_SUCCESS.
inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw transport_error(
      std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)), code);
}

}  // namespace rankcast::inline v0::mpi
