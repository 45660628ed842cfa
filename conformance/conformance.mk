# The judge `ol`, its child `ol-host`, and the tests of the judge itself. Included by ../Makefile.
JUDGE_CFLAGS := -D_GNU_SOURCE -Iengine/include -Iconformance
RUNNER_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard conformance/runner/*.c))
JUDGE_OBJ := $(RUNNER_OBJ) $(patsubst %.c,$(B)/obj/%.o,$(wildcard conformance/tests/*.c))
HOST_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard conformance/host/*.c)) $(B)/obj/conformance/runner/wire.o

$(B)/bin/ol: $(JUDGE_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ -lcmocka -ljansson -lseccomp -lm
$(B)/bin/ol-host: $(HOST_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(ld) -o $@ $^ -ljansson -ldl -lm
