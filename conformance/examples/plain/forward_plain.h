/* forward_plain.h: the working memory of a step. */
#ifndef PLAIN_FORWARD_H
#define PLAIN_FORWARD_H

#include "tl/forward.h"

struct tl_scratch {
    tl_limits limits;
    tl_model_config cfg; /* what it was made for */
    tl_work *work;       /* what tl_linear_forward asks for */
    float *memory;       /* all of the following; one token at a time is in work */
    float *x;            /* [d] the residual stream */
    float *h;            /* [d] after a norm, and what is added to x */
    float *q, *o;        /* [H * D] queries, and the output of the attention */
    float *k, *v;        /* [H_kv * D] */
    float *gate, *up;    /* [intermediate_size] */
    float *c, *s;        /* [D / 2] cosines and sines of the token's position */
};

#endif
