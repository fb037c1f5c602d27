import com.sun.net.httpserver.HttpServer;
import java.io.File;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;

/**
 * An HTTP server: PORT THREADS KB GO PERCENT. Each request makes KB of garbage. Once the file GO
 * exists, PERCENT of the heap stay in use.
 */
public class Server {
    static final List<Object[]> kept = new ArrayList<>();

    public static void main(String[] words) throws Exception {
        int kb = Integer.parseInt(words[2]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), 256);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(words[1])));
        server.createContext("/", exchange -> {
            int status = 200;
            try {
                Object[] scratch = new Object[kb];
                for (int i = 0; i < kb; i++) scratch[i] = new byte[1000];
                status = scratch[kb - 1] == null ? 500 : 200;
            } catch (OutOfMemoryError e) {
                status = 500;
            }
            byte[] body = new byte[500];
            exchange.sendResponseHeaders(status, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        File go = new File(words[3]);
        while (!go.exists()) Thread.sleep(20);
        keep(Integer.parseInt(words[4]));
        Thread.sleep(Long.MAX_VALUE);
    }

    /** Fills the heap with small objects until `percent` of it are in use after a collection. */
    static void keep(int percent) {
        Runtime runtime = Runtime.getRuntime();
        long goal = runtime.maxMemory() / 100 * percent;
        try {
            while (true) {
                long left = goal - (runtime.totalMemory() - runtime.freeMemory());
                if (left <= 0) {
                    System.gc();
                    left = goal - (runtime.totalMemory() - runtime.freeMemory());
                    if (left <= 0) return;
                }
                for (long bytes = 0; bytes < left; bytes += 64 * 500) {
                    Object[] block = new Object[500];
                    for (int i = 0; i < block.length; i++) block[i] = new long[6];
                    kept.add(block);
                }
            }
        } catch (OutOfMemoryError e) {
            // Objects that do not fit are dropped.
        }
    }
}
