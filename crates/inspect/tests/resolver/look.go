// Looks a name up. Prints microseconds, and whether it was found.
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	from := time.Now()
	_, err := net.LookupHost(os.Args[1])
	said := "found"
	if err != nil {
		said = "lost"
	}
	fmt.Println(time.Since(from).Microseconds(), said)
}
