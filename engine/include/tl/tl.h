/* tl.h: the whole library in one include. Start with runner.h (run a model) and sample.h (choose a
 * token); engine/examples/hello.c is a complete program. */
#ifndef TL_TL_H
#define TL_TL_H

#include "tl/base.h"
#include "tl/forward.h"
#include "tl/kv.h"
#include "tl/model.h"
#include "tl/ops.h"
#include "tl/quant.h"
#include "tl/runner.h"
#include "tl/sample.h"

#endif
