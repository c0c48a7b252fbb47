// Gives a name to the ways in which a launcher ends its process other than by returning.
#pragma once

namespace ptxbench::record {

// Installs signal handlers, and a system-call filter under which threads, processes, sockets, timers and signal
// handlers end the process. Afterwards such an ending writes its own line to the recording.
// False if the kernel refuses the filter.
bool name_endings();

}  // namespace ptxbench::record
