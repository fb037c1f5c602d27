%%! -noinput
%% carriers.escript PROCESSES SECONDS: processes that each build a list of 100,000 pairs, as a request does that decodes a large answer, and
%% drop it with their heap. A heap of some megabytes is larger than what a carrier of many blocks takes by default. Prints heaps a second,
%% and the resident memory at the end.
-mode(compile).

main([Processes0, Seconds0]) ->
    Until = erlang:monotonic_time(millisecond) + 1000 * list_to_integer(Seconds0),
    Self = self(),
    Work = fun() -> Self ! {done, work(Until, 0)} end,
    Began = erlang:monotonic_time(microsecond),
    [spawn_link(Work) || _ <- lists:seq(1, list_to_integer(Processes0))],
    Heaps = lists:sum([receive {done, N} -> N end || _ <- lists:seq(1, list_to_integer(Processes0))]),
    Took = erlang:monotonic_time(microsecond) - Began,
    {ok, Statm} = file:read_file("/proc/self/statm"),
    [_, Resident | _] = binary:split(Statm, <<" ">>, [global]),
    io:format("{\"heaps_per_s\": ~.1f, \"resident_bytes\": ~w}~n",
              [Heaps * 1.0e6 / Took, binary_to_integer(Resident) * 4096]).

work(Until, Heaps) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            {Pid, Ref} = spawn_monitor(fun() -> 100000 = length([{N, N} || N <- lists:seq(1, 100000)]) end),
            receive {'DOWN', Ref, process, Pid, normal} -> work(Until, Heaps + 1) end;
        false -> Heaps
    end.
