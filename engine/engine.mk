# The library, its unit tests, the bench and the example. Included by ../Makefile.
ENGINE_SRC := $(wildcard engine/src/*.c)
ENGINE_OBJ := $(ENGINE_SRC:%.c=$(B)/obj/%.o)
ABI_MAJOR := $(shell sed -n 's/^.define TL_ABI_MAJOR \([0-9]*\)u.*/\1/p' engine/include/tl/base.h)
version_of = $(shell sed -n 's/^.define TL_VERSION_$(1) \([0-9]*\).*/\1/p' engine/include/tl/base.h)
VERSION := $(call version_of,MAJOR).$(call version_of,MINOR).$(call version_of,PATCH)
ENGINE_LIBS := $(B)/lib/libtl.a $(B)/lib/libtl.so.$(ABI_MAJOR)
ENGINE_LDLIBS := -ljansson -lz -lm -lpthread
ENGINE_TESTS := $(patsubst engine/tests/%.c,$(B)/bin/tests/%,$(wildcard engine/tests/test_*.c))
EXHAUSTIVE := $(patsubst engine/tests/%.c,$(B)/bin/tests/%,$(wildcard engine/tests/exhaustive_*.c))

$(B)/lib/libtl.a: $(ENGINE_OBJ)
	@mkdir -p $(@D)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $(ENGINE_OBJ)
$(B)/lib/libtl.so.$(ABI_MAJOR): $(ENGINE_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -shared -Wl,-soname,libtl.so.$(ABI_MAJOR) $(if $(findstring sanitize,$(flags)),,-Wl,-z,defs) \
	  -o $@ $(ENGINE_OBJ) $(ENGINE_LDLIBS)
	@ln -sf libtl.so.$(ABI_MAJOR) $(B)/lib/libtl.so
# Tests that make calls fail are linked with wraps of them; a wrap calls the real function unless told otherwise.
comma := ,
wrap = $(patsubst %,-Wl$(comma)--wrap=%,$(1))
wraps_oom := $(call wrap,malloc calloc realloc)
wraps_fault := $(wraps_oom) $(call wrap,free open64 fstat64 stat64 mmap64 munmap pread64 close)
$(B)/bin/tests/%: $(B)/obj/engine/tests/%.o $(B)/lib/libtl.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $< $(if $(findstring oom,$*),$(wraps_oom)) $(if $(findstring fault,$*),$(wraps_fault)) \
	  $(B)/lib/libtl.a -lcmocka $(ENGINE_LDLIBS)
$(B)/bin/tl-bench: $(patsubst %.c,$(B)/obj/%.o,$(wildcard engine/bench/*.c)) $(B)/lib/libtl.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ $(ENGINE_LDLIBS)
$(B)/bin/tl-hello: $(B)/obj/engine/examples/hello.o $(B)/lib/libtl.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ $(ENGINE_LDLIBS)

.PHONY: engine-tests
## build the engine's unit tests in VARIANT (build/VARIANT/bin/tests/)
engine-tests: $(ENGINE_TESTS)
