/* What is done to each row of activations by itself, for who does it from C. */
#ifndef SALTWAY_ROWS_H
#define SALTWAY_ROWS_H

void saltway_norm(const float *x, const float *weight, long rows, long weights, long size, float epsilon, float *y,
                  int threads);
void saltway_gate(const float *x, long rows, long size, float *y, int threads);
void saltway_rotate(const float *x, long stride, const float *cos, const float *sin, long rows, long heads, long dim,
                    float *y, int threads);

#endif
