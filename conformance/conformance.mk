# The judge `ol`, its child `ol-host`, and the tests of the judge itself. Included by ../Makefile.
JUDGE_CFLAGS := -D_GNU_SOURCE -Iengine/include -Iconformance
RUNNER_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard conformance/runner/*.c))
JUDGE_OBJ := $(RUNNER_OBJ) $(patsubst %.c,$(B)/obj/%.o,$(wildcard conformance/tests/*.c))
HOST_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard conformance/host/*.c) $(addprefix conformance/runner/,wire.c terms.c))

# What host_faults.c puts before the C library.
FAULTY = $(foreach name,malloc calloc realloc memalign aligned_alloc posix_memalign free \
  open fstat stat mmap munmap pread read,$(addprefix -Wl$(comma)--export-dynamic-symbol=,$(name) $(name)64))

$(B)/bin/ol: $(JUDGE_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ -lcmocka -ljansson -lseccomp -lm
$(B)/bin/ol-host: $(HOST_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ $(FAULTY) -ljansson -ldl -lm

# The second implementation, conformance/examples/plain with the given base, util and ops: `ol check --fresh` asks it
# what it makes of a drawing, the fuzz targets compare with it.
SECOND_SRC := $(wildcard conformance/examples/plain/*.c) engine/src/base.c engine/src/util.c $(wildcard engine/src/ops*.c)
SECOND_RAW := $(SECOND_SRC:%.c=$(B)/obj/second/raw/%.o)
$(B)/obj/second/raw/%.o: %.c $(stamp)
	@mkdir -p $(@D)
	$(call say,CC,second $<)$(cc) -Iengine/include -Iengine/src -MMD -MP -c $< -o $@
$(B)/lib/libtl-second.so: $(SECOND_RAW)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -shared $(if $(findstring sanitize,$(flags)),,-Wl,-z,defs) -o $@ $^ $(ENGINE_LDLIBS)
