#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY 64

struct queue {
    int items[CAPACITY];
    size_t head;
    size_t length;
};

static int queue_push(struct queue *queue, int item)
{
    if (queue->length == CAPACITY)
        return -1;
    queue->items[(queue->head + queue->length) % CAPACITY] = item;
    queue->length++;
    return 0;
}

static int queue_pop(struct queue *queue, int *item)
{
    if (queue->length == 0)
        return -1;
    *item = queue->items[queue->head];
    queue->head = (queue->head + 1) % CAPACITY;
    queue->length--;
    return 0;
}

int main(int argc, char **argv)
{
    struct queue *queue = calloc(1, sizeof(*queue));
    int item;

    for (int i = 1; i < argc; i++)
        queue_push(queue, atoi(argv[i]));
    while (queue_pop(queue, &item) == 0)
        printf("%d\n", item);
    free(queue);
    return EXIT_SUCCESS;
}
