import java.net.InetAddress;
import java.net.UnknownHostException;

/** Looks a name up. Prints microseconds, and whether it was found. */
public class Look {
    public static void main(String[] args) {
        long from = System.nanoTime();
        String said = "found";
        try {
            InetAddress.getAllByName(args[0]);
        } catch (UnknownHostException e) {
            said = "lost";
        }
        System.out.println((System.nanoTime() - from) / 1000 + " " + said);
    }
}
