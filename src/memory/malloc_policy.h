#pragma once
// Room: memory. How the C library's heap must behave so that freed bytes leave the process. By
// default glibc raises its mmap threshold after each large free and keeps up to 64 MiB of address
// space per thread, so memory that was given back stays resident and is budgeted twice.

namespace tri::memory {

// Called once by a program, before it starts threads: one heap for all threads (the engine does not
// allocate inside a step), blocks from 128 KiB on mapped on their own and unmapped when freed, the
// top of the heap returned as soon as 128 KiB of it are free. A fixed threshold turns glibc's own
// adaptation off. False if the heap took no settings (another C library, a sanitizer).
bool pin_malloc() noexcept;

// Gives free pages in the middle of the heap back too; about a millisecond. After a large phase
// ends (a checkpoint, an evaluation), never inside a step.
void return_free_memory() noexcept;

}  // namespace tri::memory
