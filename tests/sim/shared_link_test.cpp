#include "sim/des/shared_link.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

// Links in bytes per nanosecond.
std::vector<Bandwidth> capacities(const std::vector<double>& bytes_per_nanosecond) {
  std::vector<Bandwidth> links;
  for (const double rate : bytes_per_nanosecond)
    links.push_back({rate * 1e9});
  return links;
}

// What a test asks of the network, and when each flow (by owner) began and ended.
struct LinksUnderTest {
  std::vector<double> capacity;  // bytes per nanosecond
  SharedLinks links;
  std::map<std::uint32_t, Time> begin, end;
  Time now;

  explicit LinksUnderTest(const std::vector<double>& rates, LinkPolicy policy = LinkPolicy::MaxMin)
      : capacity(rates), links(capacities(rates), policy) {}

  // `limit` in bytes per nanosecond.
  FlowId start(std::uint32_t owner, double bytes, const std::vector<LinkWeight>& route, double limit = 1000) {
    double full = limit;
    for (const LinkWeight& use : route)
      full = std::min(full, capacity[use.link] / use.weight);
    return links.start(now, {bytes, {limit * 1e9}, {rounded(bytes / full, "test")}, owner}, route);
  }
  // Lets flows end up to, and including, `until`.
  void run(Time until = kNever) {
    while (true) {
      const Time next = links.settle(now);
      if (next == kNever || next > until) break;
      now = next;
      for (const SharedLinks::Done& done : links.take_finished(now))
        begin[done.owner] = done.begin, end[done.owner] = now;
    }
    if (until != kNever) now = until;
  }
};

}  // namespace

TEST_CASE("two flows over one link get half of it each, and the one that stays gets it all") {
  LinksUnderTest net({1});
  net.start(0, 100, {{0}});
  net.start(1, 300, {{0}});
  net.run();
  // Half a byte per ns each: 100 bytes end at 200. Then 200 bytes are left of the other, alone: 200 + 200.
  CHECK(net.end[0] == Time{200});
  CHECK(net.end[1] == Time{400});
}

TEST_CASE("three flows: the two over the narrow link share it, the third takes what they leave of the wide one") {
  // Link 0 carries 10, link 1 carries 4.  A: 0 only.  B: 0 and 1.  C: 1 only.
  // Filling: link 1 is full at 2 each for B and C; A grows on to 10 - 2 = 8.
  LinksUnderTest net({10, 4});
  const FlowId a = net.start(0, 800, {{0}}), b = net.start(1, 200, {{0}, {1}}), c = net.start(2, 200, {{1}});
  net.links.settle({0});
  CHECK(net.links.rate(a) == 8);
  CHECK(net.links.rate(b) == 2);
  CHECK(net.links.rate(c) == 2);
  net.run();
  CHECK(net.end[0] == Time{100});
  CHECK(net.end[1] == Time{100});
  CHECK(net.end[2] == Time{100});
}

TEST_CASE("a flow that is slowed on its way leaves the rest of its link to the others, and goes on when it is not") {
  LinksUnderTest net({10});
  const FlowId a = net.start(0, 100, {{0}}), b = net.start(1, 100, {{0}});
  net.run(Time{10});     // 5 each: 50 bytes done
  net.links.slow(a, 4);  // 10 / 4 at most
  net.links.settle(net.now);
  CHECK(net.links.rate(a) == 2.5);
  CHECK(net.links.rate(b) == 7.5);
  net.run(Time{14});
  net.links.slow(a, 1);
  net.run();
  // 10 + 50 / 7.5 = 16.67; at 14 it is slowed no longer: 20 of its bytes are left, 5 each: 18. Then 20 of a alone: 20.
  CHECK(net.end[1] == Time{18});
  CHECK(net.end[0] == Time{20});
}

TEST_CASE("a flow that has its links for itself takes longer while it is slowed, begun or not") {
  LinksUnderTest net({10}, LinkPolicy::Fifo);
  const FlowId a = net.start(0, 100, {{0}}), b = net.start(1, 100, {{0}});
  net.run(Time{5});
  net.links.slow(a, 2);
  net.links.slow(b, 2);
  net.run();
  CHECK(net.end[0] == Time{15});
  CHECK(net.end[1] == Time{35});
}

TEST_CASE("a flow's own limit leaves the rest of a link to the others") {
  LinksUnderTest net({10});
  const FlowId slow = net.start(0, 100, {{0}}, 2), fast = net.start(1, 100, {{0}});
  net.links.settle({0});
  CHECK(net.links.rate(slow) == 2);
  CHECK(net.links.rate(fast) == 8);
}

TEST_CASE("a weight says how much of a link each byte of a flow takes") {
  // Rates r are equal: 3 r + 1 r = 8, so both move 2 bytes per ns, the first one loading the link with 6 of 8.
  LinksUnderTest net({8});
  const FlowId ring = net.start(0, 100, {{0, 3}}), plain = net.start(1, 100, {{0}});
  net.links.settle({0});
  CHECK(net.links.rate(ring) == 2);
  CHECK(net.links.rate(plain) == 2);
}

TEST_CASE("what shares no link, directly or through others, does not notice") {
  LinksUnderTest net({1, 1, 1});
  const FlowId far = net.start(0, 1000, {{2}});
  net.links.settle({0});
  net.start(1, 10, {{0}, {1}});
  const FlowId near = net.start(2, 10, {{1}});
  net.links.settle({0});
  CHECK(net.links.rate(far) == 1);
  CHECK(net.links.rate(near) == 0.5);
  net.run();
  CHECK(net.end[0] == Time{1000});
}

TEST_CASE("a flow that is alone all its life ends exactly when it is priced to, a third of a byte per ns or not") {
  for (const double bytes : {1.0, 7.0, 1e6 + 1, 123456789.0}) {
    SharedLinks links({{1e9 / 3}}, LinkPolicy::MaxMin);
    const Time alone = transfer_time(bytes, {1e9 / 3});
    const LinkWeight route[] = {{0}};
    links.start({5}, {bytes, {1e9 / 3}, alone, 0}, route);
    CHECK(links.settle({5}) == Time{5} + alone);
  }
}

TEST_CASE("a flow that begins when another ends never shares with it") {
  SharedLinks links({{1e9}}, LinkPolicy::MaxMin);
  const LinkWeight route[] = {{0}};
  links.start({0}, {100, {1e9}, {100}, 0}, route);
  CHECK(links.settle({0}) == Time{100});
  // Both happen at 100; asked for first, ended afterwards.
  links.start({100}, {50, {1e9}, {50}, 1}, route);
  CHECK(links.take_finished({100}).size() == 1);
  CHECK(links.settle({100}) == Time{150});
}

TEST_CASE("three equal flows over one link take three times as long, to the nanosecond") {
  LinksUnderTest net({1});
  for (std::uint32_t owner : {0, 1, 2})
    net.start(owner, 1000, {{0}});
  net.run();
  for (std::uint32_t owner : {0, 1, 2})
    CHECK(net.end[owner] == Time{3000});
}

TEST_CASE("bytes are conserved: rate x time adds up to what was asked, whatever comes and goes") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    constexpr int kLinks = 6, kFlows = 40;
    LinksUnderTest net(std::vector<double>(kLinks, 1.0 + static_cast<double>(random() % 5)));
    std::map<std::uint32_t, double> asked, moved, last_rate;
    std::map<std::uint32_t, FlowId> running;
    std::uint32_t next = 0;
    while (next < kFlows || !running.empty()) {
      if (next < kFlows && random() % 2 == 0) {
        const auto link = static_cast<std::uint32_t>(random() % kLinks);
        asked[next] = 1 + static_cast<double>(random() % 5000);
        running[next] =
            net.start(next, asked[next], {{link, 1.0 + static_cast<double>(random() % 3)}, {(link + 1) % kLinks, 0.5}});
        ++next;
        if (random() % 2 == 0) continue;
      }
      Time until = net.links.settle(net.now);
      if (next < kFlows) until = std::min(until, net.now + Time{static_cast<std::int64_t>(random() % 300)});
      for (const auto& [owner, flow] : running) {
        last_rate[owner] = net.links.rate(flow);
        moved[owner] += last_rate[owner] * static_cast<double>((until - net.now).value);
      }
      net.now = until;
      for (const SharedLinks::Done& done : net.links.take_finished(net.now)) {
        // An end is rounded up to a whole nanosecond: up to one nanosecond's bytes too many. That of a flow which has
        // its full rate all its life is rounded to the nearest one: up to half a nanosecond's bytes too few.
        CHECK(moved[done.owner] >= asked[done.owner] - 0.5 * last_rate[done.owner] - 0.01);
        CHECK(moved[done.owner] <= asked[done.owner] + last_rate[done.owner] + 0.01);
        running.erase(done.owner);
      }
    }
    CHECK(net.links.live() == 0);
  }
}

TEST_CASE("max-min: every flow has a full link on which none is faster, or runs at its own limit") {
  std::mt19937 dice(11);
  const auto random = [&dice] { return static_cast<std::uint32_t>(dice()); };
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t count = 2 + random() % 6;
    std::vector<double> capacity;
    for (std::uint32_t link = 0; link < count; ++link)
      capacity.push_back(1 + random() % 9);
    SharedLinks links(capacities(capacity), LinkPolicy::MaxMin);
    struct Asked {
      FlowId id;
      std::vector<LinkWeight> route;
      double limit;
    };
    std::vector<Asked> flows;
    for (std::uint32_t i = 0; i < 1 + random() % 12; ++i) {
      Asked flow{0, {}, 0.5 + random() % 6};
      for (std::uint32_t link = 0; link < count; ++link)
        if (random() % 3 == 0) flow.route.push_back({link, 1.0 + random() % 3});
      if (flow.route.empty()) flow.route.push_back({0});
      flow.id = links.start({0}, {1e6, {flow.limit * 1e9}, {1}, i}, flow.route);
      flows.push_back(flow);
    }
    links.settle({0});
    std::vector<double> load(count), fastest(count);
    for (const Asked& flow : flows)
      for (const LinkWeight& use : flow.route) {
        load[use.link] += use.weight * links.rate(flow.id);
        fastest[use.link] = std::max(fastest[use.link], links.rate(flow.id));
      }
    for (std::uint32_t link = 0; link < count; ++link)
      CHECK(load[link] <= capacity[link] * (1 + 1e-12));
    for (const Asked& flow : flows) {
      const double rate = links.rate(flow.id);
      bool held = rate >= flow.limit * (1 - 1e-12);
      for (const LinkWeight& use : flow.route)
        held = held || (load[use.link] >= capacity[use.link] * (1 - 1e-9) && rate >= fastest[use.link] * (1 - 1e-9));
      CHECK(held);
    }
  }
}

TEST_CASE("max-min: a change that is followed gives what filling all again gives, and so does filling after a while") {
  std::mt19937 dice(23);
  const auto random = [&dice](std::uint32_t below) { return static_cast<std::uint32_t>(dice()) % below; };
  for (int round = 0; round < 100; ++round) {
    const std::uint32_t count = 1 + random(7);
    std::vector<double> capacity;
    for (std::uint32_t link = 0; link < count; ++link)
      capacity.push_back(1 + random(9));
    std::vector<SharedLinks> all;
    for (const std::size_t patience : {0, 1, 4})
      all.emplace_back(capacities(capacity), LinkPolicy::MaxMin, patience);
    struct Running {
      FlowId id;
      std::uint32_t owner;
    };
    std::vector<Running> running;
    Time now;
    for (std::uint32_t owner = 0; owner < 30 || !running.empty();) {
      for (std::uint32_t more = random(4); more > 0 && owner < 30; --more) {
        std::vector<LinkWeight> route;
        for (std::uint32_t link = random(count); link < count && route.size() < 1 + owner % 4; link += 1 + random(2))
          route.push_back({link, 1.0 + random(3)});
        const double bytes = 1 + random(5000), limit = 0.5 + random(6);
        double full = limit;
        for (const LinkWeight& use : route)
          full = std::min(full, capacity[use.link] / use.weight);
        FlowId id = 0;
        for (SharedLinks& links : all)
          id = links.start(now, {bytes, {limit * 1e9}, {rounded(bytes / full, "test")}, owner}, route);
        running.push_back({id, owner++});
      }
      if (!running.empty() && random(4) == 0) {
        const FlowId slowed = running[random(static_cast<std::uint32_t>(running.size()))].id;
        const double slower = 1 + random(3);
        for (SharedLinks& links : all)
          links.slow(slowed, slower);
      }
      const Time next = all[0].settle(now);
      for (SharedLinks& links : all) {
        CHECK(links.settle(now) == next);
        for (const Running& flow : running)
          CHECK(links.rate(flow.id) == doctest::Approx(all[0].rate(flow.id)).epsilon(1e-12));
      }
      now = owner < 30 ? std::min(next, now + Time{random(300)}) : next;
      std::vector<std::uint32_t> ended;
      for (SharedLinks& links : all) {
        std::vector<std::uint32_t> owners;
        for (const SharedLinks::Done& done : links.take_finished(now))
          owners.push_back(done.owner);
        if (&links == &all[0]) ended = owners;
        CHECK(owners == ended);
      }
      std::erase_if(running, [&](const Running& flow) { return std::ranges::count(ended, flow.owner) > 0; });
    }
  }
}

TEST_CASE("fifo: a flow has its links for itself, the next one begins when it ends") {
  LinksUnderTest net({1}, LinkPolicy::Fifo);
  net.start(0, 100, {{0}});
  net.start(1, 300, {{0}});
  net.run();
  CHECK(net.end[0] == Time{100});
  CHECK(net.begin[1] == Time{100});
  CHECK(net.end[1] == Time{400});
}

TEST_CASE("fifo: nobody overtakes on a link that an earlier flow waits for, and nothing deadlocks") {
  // A holds 0. B asks for 0 and 1 and waits for 0; C asks for 1, which is free, but B asked earlier. D's link is free.
  LinksUnderTest net({1, 1, 1}, LinkPolicy::Fifo);
  net.start(0, 10, {{0}});
  net.start(1, 10, {{0}, {1}});
  net.start(2, 10, {{1}});
  net.start(3, 10, {{2}});
  net.run();
  CHECK(net.end[0] == Time{10});
  CHECK(net.end[1] == Time{20});
  CHECK(net.end[2] == Time{30});
  CHECK(net.end[3] == Time{10});
}

TEST_CASE("fifo: flows in a circle of links, each wanting its neighbour's, all get through") {
  LinksUnderTest net({1, 1, 1}, LinkPolicy::Fifo);
  for (std::uint32_t i : {0, 1, 2})
    net.start(i, 10, {{i}, {(i + 1) % 3}});
  net.run();
  CHECK(net.end[0] == Time{10});
  CHECK(net.end[1] == Time{20});
  CHECK(net.end[2] == Time{30});
}
