CC ?= cc
CFLAGS += -Wall -Wextra -O2
OBJECTS = main.o queue.o serial.o

.PHONY: all clean test

all: gauge

gauge: $(OBJECTS)
	$(CC) $(CFLAGS) -o $@ $^

%.o: %.c queue.h
	$(CC) $(CFLAGS) -c -o $@ $<

test: gauge
	./gauge --self-test

clean:
	rm -f gauge $(OBJECTS)
