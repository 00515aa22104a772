package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

type reading struct {
	station string
	level   float64
}

func parse(line string) (reading, error) {
	parts := strings.Split(line, ",")
	if len(parts) != 2 {
		return reading{}, fmt.Errorf("expected 2 parts, got %d", len(parts))
	}
	level, err := strconv.ParseFloat(parts[1], 64)
	return reading{station: parts[0], level: level}, err
}

func main() {
	readings := make(chan reading, 16)
	go func() {
		defer close(readings)
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			if r, err := parse(scanner.Text()); err == nil {
				readings <- r
			}
		}
	}()
	for r := range readings {
		fmt.Printf("%-20s %6.1f\n", r.station, r.level)
	}
}
