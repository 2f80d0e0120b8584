// A library with one plug-in, whose creator makes nothing: a real registry loads it, and a real parser finds it.
// Compiled without TensorRT's headers: the interfaces are written out, in the order of their tables.
#include <cstdint>
struct Info { char const* kind; int32_t major, minor; };
struct Versioned {
    virtual int32_t language() const noexcept { return 0; }
    virtual Info info() const noexcept = 0;
    virtual ~Versioned() = default;
};
struct Fields { int32_t count; void const* fields; };
struct Creator : Versioned {
    Fields fields{0, nullptr};
    Info info() const noexcept override { return {"PLUGIN CREATOR_V3ONE", 1, 0}; }
    virtual void* create(char const*, Fields const*, int32_t) noexcept { return nullptr; }
    virtual Fields const* fieldNames() noexcept { return &fields; }
    virtual char const* name() const noexcept { return "OwnDetector"; }
    virtual char const* version() const noexcept { return "1"; }
    virtual char const* space() const noexcept { return ""; }
};
static Creator creator;
static Versioned* const creators[] = {&creator};
extern "C" Versioned* const* getCreators(int32_t& count) { count = 1; return creators; }
extern "C" void setLoggerFinder(void*) {}
